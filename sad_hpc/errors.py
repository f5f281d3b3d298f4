"""The errors that users see: each message names the cause and the fix."""

import traceback
from collections.abc import Sequence
from pathlib import Path

ERROR_PREFIX = "sad-hpc: error: "
"""Prefix of the line that says why a command or a job failed."""

LONGEST = 500
"""Most characters that are shown of another package's message."""


class UserError(Exception):
    """An error that the user can fix; the command line prints it in one line, without traceback."""


class ConfigError(UserError):
    """An invalid configuration."""


class DatasetError(UserError):
    """A dataset that is missing, incomplete, damaged or of another kind."""


class UnreadableError(DatasetError):
    """A dataset that exists and cannot be read, such as from a disk that fails."""


class EnvironmentFailure(UserError):
    """A user's environment failed in a step; a retry may succeed."""


class RenderError(UserError):
    """OpenGL failed; another process may succeed."""


class DivergedError(UserError):
    """A training whose losses, gradients or weights are no longer finite."""

    REMEDY = "lower pretrain.learning_rate, or set pretrain.gradient_clipping, and train again"


class CheckpointError(UserError):
    """A checkpoint that is damaged or belongs to another model or run."""


def printable(text: str) -> str:
    """Return text in one line, with control characters escaped as `\\x1b`."""
    line = " ".join(text.split())
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode() for each in line
    )


def first_few(names: Sequence[str], most: int) -> str:
    """Return the first names in a line, and the number of the others."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


def described(error: BaseException) -> str:
    """Return an error of another package in one line, such as `ValueError: its message`.

    Without a message, the line names the file, the line number and the code.
    """
    name, text = type(error).__name__, message_of(error)
    if isinstance(error, SystemExit):
        return text
    return f"{name}: {text}" if text else f"{name}{_place(error)}"


def message_of(error: BaseException) -> str:
    """Return the message of an error of another package in one line; it may be empty."""
    try:
        text = printable(str(error))
    except Exception:  # its __str__ fails
        return ""
    if isinstance(error, SystemExit):
        return f"it ends the process with exit code {text if error.code else 0}"
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."


def _place(error: BaseException) -> str:
    """Return the place that raised an error, such as ` in zoo.py, line 12 (assert x > 0)`."""
    frames = traceback.extract_tb(error.__traceback__)
    if not frames:
        return ""
    last = frames[-1]
    code = f" ({printable(last.line)})" if last.line else ""
    return f" in {printable(Path(last.filename).name)}, line {last.lineno}{code}"
