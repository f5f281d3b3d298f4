"""Interruptible kernels: a thread runs them while the main thread handles signals.

A compiled kernel can block Python's signal handlers for hours, so kernels poll STOP_FLAG.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TypeVar

import numpy as np

T = TypeVar("T")

STOP_FLAG = np.zeros(1, np.uint8)
"""Kernels poll this flag at every rollout, and return INTERRUPTED once it is set."""

INTERRUPTED = -2

POLL_SECONDS = 0.2

PATIENCE_SECONDS = 1.0
"""Time that a running block gets to finish before STOP_FLAG is set."""


class Interrupted(Exception):
    """A kernel has returned before the end of its work."""


def raise_if_interrupted(spent: int) -> int:
    """Return what a kernel returned, unless that is INTERRUPTED.

    Raises:
        Interrupted: the kernel returned INTERRUPTED.
    """
    if spent == INTERRUPTED:
        raise Interrupted
    return spent


def interruptible(work: Callable[[], T], told: Callable[[], bool]) -> T:
    """Run `work` in a thread, and return its result; the calling thread handles signals.

    Args:
        work: calls kernels.
        told: whether to stop the kernels.

    Raises:
        Interrupted: `told` returned True and the kernels stopped.
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
