"""Preemption: a signal raises a flag, and each stage stops at the next place where nothing is lost.

Slurm sends USR2 ahead of a time limit and, as `scancel --signal=USR2`, on a user's word; it sends
TERM when it ends a job for whatever reason, or is about to: a preempted job may get some time in
between.  A handler runs between any two instructions, so it may
do nothing else: saving takes all ranks, at the same step.
"""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from sad_hpc.parallel.signals import handled

SIGNALS = (signal.SIGUSR2, signal.SIGTERM)

_received: list[signal.Signals] = []


class Preempted(Exception):
    """The stage stopped early; started again, it goes on where it was.

    Args:
        reason: for the log.
        requeue: whether the job has to queue itself again.
    """

    def __init__(self, reason: str, requeue: bool) -> None:
        super().__init__(reason, requeue)  # both, or it could not travel between ranks
        self.reason, self.requeue = reason, requeue

    def __str__(self) -> str:
        return self.reason


def requested() -> bool:
    """Whether this process was told to stop."""
    return bool(_received)


def requeue_requested() -> bool:
    """Whether it was also told to queue its job again; after a TERM, Slurm may have other plans."""
    return signal.SIGUSR2 in _received


def check() -> None:
    """Stops here if this process was told to; for stages of one process.

    Raises:
        Preempted: it was.
    """
    if _received:
        raise Preempted(f"stopped by {_received[0].name}", requeue_requested())


@contextmanager
def watched() -> Iterator[None]:
    """Within this block the signals are noted instead of ending the process."""
    _received.clear()
    try:
        with handled(*SIGNALS, by=_note):
            yield
    finally:
        _received.clear()


def _note(number: int, frame: FrameType | None) -> None:
    _received.append(signal.Signals(number))
