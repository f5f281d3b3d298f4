"""Temporary signal handlers."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


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
