"""Leaving a block before its end.

Python's signal handlers run in the main thread between two of its instructions, and a kernel is one
instruction, of hours maybe.  So kernels run in a thread beside it, and look at a flag.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TypeVar

import numpy as np

T = TypeVar("T")

STOP_FLAG = np.zeros(1, np.uint8)
"""Kernels look at it at every rollout, and return INTERRUPTED once it is set."""

INTERRUPTED = -2

POLL_SECONDS = 0.2

PATIENCE_SECONDS = 1.0
"""Most blocks are finished by then."""


class Interrupted(Exception):
    """The kernels have left their work before its end."""


def raise_if_interrupted(spent: int) -> int:
    """What a kernel returned.

    Raises:
        Interrupted: it has left its work.
    """
    if spent == INTERRUPTED:
        raise Interrupted
    return spent


def interruptible(work: Callable[[], T], told: Callable[[], bool]) -> T:
    """The result of `work`; meanwhile this thread handles signals.

    Args:
        work: calls kernels.
        told: whether they shall leave it soon.

    Raises:
        Interrupted: they were told, and have left it.
    """
    with ThreadPoolExecutor(1) as thread:
        try:
            result = thread.submit(work)
            while not result.done() and not told():
                wait([result], POLL_SECONDS)
            wait([result], PATIENCE_SECONDS)
        finally:  # also after Ctrl-C
            STOP_FLAG[0] = 1
            thread.shutdown()
            STOP_FLAG[0] = 0
    return result.result()
