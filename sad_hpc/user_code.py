"""Calls of code that is not this package's: environments, and task families of other packages.

Such code may end the process, print, change the working directory, or never return.  Every call of
it stands in a `with UserCode(...)`, and is an error of one line at worst.
"""

import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import NoReturn

from sad_hpc.errors import EnvironmentFailure, described

FAILURES = (Exception, SystemExit)
"""What user code may raise in place of a result; Ctrl-C is none of them."""

PASSED_ON = (Exception, KeyboardInterrupt, GeneratorExit)
"""What a block leaves as it is; everything else would end the process."""

SILENCE_SECONDS = 60.0
"""A call that takes longer is reported, again after twice the time, and so on."""

LOOK_SECONDS = 5.0

SILENCE_PREFIX = "sad-hpc: no answer for "
"""Begins the line that reports a call that does not return."""


class _State:
    """Where this process is; an object of its own, as setting a class's attribute takes longer."""

    __slots__ = ("entered", "innermost", "prepared")

    def __init__(self) -> None:
        self.innermost: UserCode | None = None
        """The block that the process is in."""
        self.entered = 0
        """How many blocks it has entered."""
        self.prepared = False


_state = _State()


class UserCode:
    """A block that calls user code.

    Standard output goes to standard error in it, as a command's own output may be read by a
    program.  The working directory is the same after it as before it.  A call that does not return
    is reported on standard error.

    Args:
        doing: what is called, for messages; asked while it runs, so that it can name the step.
        watched: whether to report a call that does not return.

    Raises:
        EnvironmentFailure: the code ends the process, by `sys.exit` or `os._exit`.
    """

    __slots__ = ("_folder", "_outer", "_stdout", "doing", "watched")

    def __init__(self, doing: Callable[[], str], watched: bool = True) -> None:
        self.doing, self.watched = doing, watched

    def __enter__(self) -> None:
        if not _state.prepared:
            _prepare()
        self._stdout, sys.stdout = sys.stdout, sys.stderr
        self._folder = _working_directory()
        self._outer, _state.innermost = _state.innermost, self
        _state.entered += 1

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        _state.innermost, sys.stdout = self._outer, self._stdout
        if self._folder is not None and _working_directory() != self._folder:
            os.chdir(self._folder)
        if error is not None and not isinstance(error, PASSED_ON):
            raise EnvironmentFailure(f"{self.doing()}: {described(error)}") from error


class Watch:
    """Finds a call of user code that does not return.

    Args:
        seconds: without progress, before the first report.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = self._next = seconds
        self._seen: tuple[int, str] | None = None
        self._since = 0.0

    def look(self, now: float) -> str | None:
        """The report that is due, if any.

        Args:
            now: seconds of a clock that only goes on.
        """
        call = _state.innermost
        seen = (_state.entered, call.doing()) if call is not None and call.watched else None
        if seen is None or seen != self._seen:
            self._seen, self._since, self._next = seen, now, self._seconds
            return None
        if now - self._since < self._next:
            return None
        self._next *= 2
        return f"{SILENCE_PREFIX}{now - self._since:.0f} s: {seen[1]}"

    def run(self) -> None:
        """Looks every LOOK_SECONDS, and prints the reports, to the end of the process."""
        while True:
            time.sleep(LOOK_SECONDS)
            with suppress(Exception):  # a row that is being replaced, a stream that is closed
                if report := self.look(time.monotonic()):
                    print(report, file=sys.stderr, flush=True)


_end_process = os._exit


def _prepare() -> None:
    """Once a process: the thread that watches, and an `os._exit` that user code cannot use."""
    _state.prepared = True
    os._exit = _exit
    threading.Thread(
        target=Watch(SILENCE_SECONDS).run, name="watch of user code", daemon=True
    ).start()


def _exit(status: int) -> NoReturn:
    """`os._exit`; within user code it raises SystemExit, as no command could report it else."""
    if _state.innermost is not None:
        raise SystemExit(status)
    _end_process(status)


def _forget() -> None:
    """In a forked process, which ends as it likes and has no thread that watches."""
    _state.prepared, _state.innermost = False, None


os.register_at_fork(after_in_child=_forget)


def _working_directory() -> str | None:
    """None where it has been removed."""
    try:
        return os.getcwd()
    except FileNotFoundError:
        return None
