"""The one exception that users are meant to see: a message that names the thing and the way out."""

import traceback
from pathlib import Path

ERROR_PREFIX = "sad-hpc: error: "
"""Begins the line that says why a command or a job failed."""

LONGEST = 500
"""Characters of another package's message that are shown."""


class UserError(Exception):
    """A fault that the user can mend; the command line prints it in one line, without traceback."""


class ConfigError(UserError):
    """A configuration that cannot be run."""


class DatasetError(UserError):
    """A dataset that is missing, incomplete, damaged or of another kind."""


class EnvironmentFailure(UserError):
    """A user's environment has failed in a step; another try may succeed."""


class RenderError(UserError):
    """OpenGL has failed on the way; another process may succeed."""


class DivergedError(UserError):
    """A training whose losses, gradients or weights are no longer finite."""

    REMEDY = "lower pretrain.learning_rate, or set pretrain.gradient_clipping, and train again"


class CheckpointError(UserError):
    """A checkpoint that is damaged or belongs to another model or run."""


def printable(text: str) -> str:
    """The text in one line; control characters, which a terminal would obey, as `\\x1b`."""
    line = " ".join(text.split())
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode() for each in line
    )


def described(error: BaseException) -> str:
    """An error of another package in one line: `ValueError: what it says`.

    Where it says nothing, its file and line are named, with the code there.
    """
    name, text = type(error).__name__, message_of(error)
    if isinstance(error, SystemExit):
        return text
    return f"{name}: {text}" if text else f"{name}{_place(error)}"


def message_of(error: BaseException) -> str:
    """What an error of another package says, in one line; it may say nothing."""
    try:
        text = printable(str(error))
    except Exception:  # of a class with a __str__ that fails
        return ""
    if isinstance(error, SystemExit):
        return f"it ends the process with exit code {text if error.code else 0}"
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."


def _place(error: BaseException) -> str:
    """The line of code that raised an error, such as ` in zoo.py, line 12 (assert x > 0)`."""
    frames = traceback.extract_tb(error.__traceback__)
    if not frames:
        return ""
    last = frames[-1]
    code = f" ({printable(last.line)})" if last.line else ""
    return f" in {printable(Path(last.filename).name)}, line {last.lineno}{code}"
