"""Imports of user modules, with errors in one line."""

import importlib
import traceback
from types import ModuleType

from sad_hpc.errors import ConfigError, UserError, message_of, printable
from sad_hpc.user_code import FAILURES, UserCode


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
