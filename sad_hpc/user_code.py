"""Safe calls of user code: environments, and task families of other packages.

User code may end the process, print, change the working directory, or never return.  Every call
stands in a `with UserCode(...)` block, which turns failures into errors of one line.
"""

import hashlib
import importlib
import inspect
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable
from contextlib import suppress
from importlib.metadata import EntryPoint
from types import ModuleType
from typing import Any, NoReturn

from sad_hpc.errors import (
    ConfigError,
    EnvironmentFailure,
    UserError,
    described,
    message_of,
    printable,
)

FAILURES = (Exception, SystemExit)
"""Exceptions of user code that are caught; KeyboardInterrupt is not."""

PASSED_ON = (Exception, KeyboardInterrupt, GeneratorExit)
"""Exceptions that a block passes on; others, such as SystemExit, become EnvironmentFailure."""

KNOWN = {"sad_hpc", "gymnasium", "numpy", "torch", *sys.stdlib_module_names}
"""Packages without digests: revisions of this package and versioned Gymnasium ids cover them."""

SILENCE_SECONDS = 60.0
"""A call that takes longer is reported, and again after each doubling of the time."""

LOOK_SECONDS = 5.0

SILENCE_PREFIX = "sad-hpc: no answer for "
"""Prefix of the line that reports a call that does not return."""


class _State:
    """The user code that this process is in; an instance, since class attributes are slower."""

    __slots__ = ("entered", "innermost", "prepared")

    def __init__(self) -> None:
        self.innermost: UserCode | None = None
        """The innermost block that the process is in."""
        self.entered = 0
        """Number of blocks that the process has entered."""
        self.prepared = False


_state = _State()


class UserCode:
    """A block that calls user code.

    Within the block, standard output goes to standard error, since a program may read a command's
    output.  The block restores the working directory.  A call that does not return is reported on
    standard error.

    Args:
        doing: returns a description of the call for messages; called while the code runs.
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

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        _state.innermost, sys.stdout = self._outer, self._stdout
        if self._folder is not None and _working_directory() != self._folder:
            os.chdir(self._folder)
        if error is not None and not isinstance(error, PASSED_ON):
            raise EnvironmentFailure(f"{self.doing()}: {described(error)}") from error


class Watch:
    """A watch for calls of user code that do not return.

    Args:
        seconds: time without progress before the first report.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = self._next = seconds
        self._seen: tuple[int, str] | None = None
        self._since = 0.0

    def look(self, now: float) -> str | None:
        """Return the report that is due, or None.

        Args:
            now: seconds of a monotonic clock.
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
        """Look every LOOK_SECONDS and print reports until the process ends."""
        while True:
            time.sleep(LOOK_SECONDS)
            with suppress(Exception):  # `doing` may change meanwhile, and the stream may be closed
                if report := self.look(time.monotonic()):
                    print(report, file=sys.stderr, flush=True)


_end_process = os._exit


def _prepare() -> None:
    """Start the watch thread and replace `os._exit`, once per process."""
    _state.prepared = True
    os._exit = _exit
    threading.Thread(
        target=Watch(SILENCE_SECONDS).run, name="watch of user code", daemon=True
    ).start()


def _exit(status: int) -> NoReturn:
    """Replace `os._exit`: within user code, raise SystemExit, which a command can report."""
    if _state.innermost is not None:
        raise SystemExit(status)
    _end_process(status)


def _forget() -> None:
    """Reset the state in a forked process, which has no watch thread."""
    _state.prepared, _state.innermost = False, None


os.register_at_fork(after_in_child=_forget)


def _working_directory() -> str | None:
    """Return the working directory; None if it has been removed."""
    try:
        return os.getcwd()
    except FileNotFoundError:
        return None


class MissingModule(ConfigError):
    """A module that is neither installed nor in a folder of PYTHONPATH."""


def import_user_module(name: str) -> ModuleType:
    """Import a module, and its parents first.

    Raises:
        MissingModule: no module has this name.
        ConfigError: the module's code fails; the message names the error, the file and the line.
    """
    text = f"cannot import {printable(name)}"
    with UserCode(lambda: f"the import of {printable(name)}"):
        try:
            return importlib.import_module(name)
        except UserError:  # already names the fix
            raise
        except FAILURES as error:
            if isinstance(error, ModuleNotFoundError) and f"{name}.".startswith(f"{error.name}."):
                raise MissingModule(f"{text} ({message_of(error)})") from error
            raise ConfigError(f"{text}: {fault_of(error, name)}") from error


def entry_point_object(point: EntryPoint) -> Any:
    """Import the module of an entry point, and return its object.

    Raises:
        ConfigError: the import fails, or the module has no such object.
    """
    found: Any = import_user_module(point.module)
    try:
        for part in point.attr.split("."):
            found = getattr(found, part)
    except AttributeError as error:
        raise ConfigError(str(error)) from error
    return found


def fault_of(error: BaseException, module: str | None = None) -> str:
    """Return `SyntaxError in FILE, line N: text`, all in one line.

    Args:
        error: the caught error.
        module: the module whose code to name, instead of that of a library which it calls.
    """
    name = type(error).__name__
    if isinstance(error, SyntaxError) and error.filename is not None:
        return f"{name} in {printable(error.filename)}, line {error.lineno}: {error.msg}"
    text = message_of(error) or "no further explanation"
    frame = _frame(error, module)
    place = "" if frame is None else f" in {printable(frame.filename)}, line {frame.lineno}"
    return f"{name}{place}: {text}"


def _frame(error: BaseException, module: str | None) -> traceback.FrameSummary | None:
    """Return the last frame in the module's package, else in any file; None without a frame."""
    package = module and module.partition(".")[0]
    own = any_file = None
    for frame, line in traceback.walk_tb(error.__traceback__):
        code, place = frame.f_code, frame.f_globals.get("__name__", "")
        if code.co_filename.startswith("<") or place.startswith("importlib."):
            continue
        any_file = traceback.FrameSummary(code.co_filename, line, code.co_name, lookup_line=False)
        if place.partition(".")[0] == package:
            own = any_file
    return own or any_file


def code_digests(objects: Iterable[Any]) -> tuple[str, ...]:
    """Return the digests of the modules that define classes, their bases and functions, sorted.

    They are part of signatures, so that edited code makes new outputs.  Modules of KNOWN and
    modules without a source file are left out.  Imports of a module are not followed.
    """
    parts = [part for each in objects for part in getattr(each, "__mro__", (each,))]
    own = {part.__module__ for part in parts if part.__module__.partition(".")[0] not in KNOWN}
    return tuple(digest for name in sorted(own) if (digest := _digest(name)) is not None)


def _digest(module: str) -> str | None:
    """Return the BLAKE2b digest of a module's source text, in hex, with normalized line ends."""
    try:
        text = inspect.getsource(sys.modules[module])
    except (KeyError, OSError, TypeError):
        return None
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
