"""Preemption: a signal sets a flag, and each stage stops at the next point where it can resume.

Slurm sends USR2 before a time limit; a user sends it by `scancel --signal=USR2`.  Slurm sends TERM
when it ends a job for any reason.  A preempted job may get a grace time after TERM.  A signal
handler may run between any two instructions, so it only sets the flag: to save a checkpoint, all
ranks must stop at the same step.
"""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGUSR2, signal.SIGTERM)

_received: list[signal.Signals] = []


class Preempted(Exception):
    """A stage stopped early because of a signal; a new start resumes it.

    Args:
        reason: text for the log.
        requeue: whether the job has to requeue itself.
    """

    def __init__(self, reason: str, requeue: bool) -> None:
        super().__init__(reason, requeue)  # both, so that it can be pickled between ranks
        self.reason, self.requeue = reason, requeue

    def __str__(self) -> str:
        return self.reason


def requested() -> bool:
    """Return whether a signal has told this process to stop."""
    return bool(_received)


def requeue_requested() -> bool:
    """Return whether the signal asks for a requeue: USR2 does, TERM alone does not."""
    return signal.SIGUSR2 in _received


def check() -> None:
    """Stop a stage of one process if a signal has arrived.

    Raises:
        Preempted: a signal has arrived.
    """
    if _received:
        raise Preempted(f"stopped by {_received[0].name}", requeue_requested())


@contextmanager
def watched() -> Iterator[None]:
    """Record the signals within this block instead of ending the process."""
    _received.clear()
    try:
        with handled(*SIGNALS, by=_note):
            yield
    finally:
        _received.clear()


def _note(number: int, frame: FrameType | None) -> None:
    _received.append(signal.Signals(number))


@contextmanager
def handled(
    *numbers: signal.Signals, by: Callable[[int, FrameType | None], object] | signal.Handlers
) -> Iterator[None]:
    """Let `by` handle these signals within this block; no effect outside the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, by) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
