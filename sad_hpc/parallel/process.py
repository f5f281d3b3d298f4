"""The standard streams of a process, and its exit before Python's teardown.

The streams may be closed or lose their reader without ending the process.  A program may read a
command's output, so only Python's `print` writes to standard output.  The writes of libraries and
child processes to descriptor 1 go to standard error.

The exit keeps the exit code of a training.  A thread of gloo may still have to free a tensor of the
last collective, for which it takes Python's lock.  During teardown that aborts the process
(`terminate called without an active exception`): a finished job counts as failed, and a job may be
killed before its requeue.  Destroying the process group does not end these threads while an object
of DeepSpeed refers to it.
"""

import atexit
import io
import os
import sys
from typing import Any


class _Unread(io.FileIO):
    """A descriptor that switches to /dev/null once its reader has gone (`| head`)."""

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self.fileno())
            os.close(nowhere)
            return super().write(data)


def keep_streams_open() -> None:
    """Let this process continue if its standard streams are closed or lose their reader.

    Call it first: the next file to be opened would get the descriptor of a closed stream (`2>&-`),
    and the printed text with it.
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            # It gets the lowest free number; child processes inherit it.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    _own_output.append(os.dup(1))  # which children do not inherit
    os.dup2(2, 1)
    for descriptor, name in ((_own_output[0], "stdout"), (2, "stderr")):
        stream = getattr(sys, name)
        replacement = io.TextIOWrapper(
            io.BufferedWriter(_Unread(descriptor, "wb", closefd=False)),
            encoding=stream.encoding if stream else "utf-8",
            errors=stream.errors if stream else "replace",
            # With `python -u` each line is flushed.
            line_buffering=stream is None or stream.line_buffering or stream.write_through,
        )
        setattr(sys, name, replacement)


def hand_over_output() -> None:
    """Restore descriptor 1 as standard output for the program that replaces this process."""
    sys.stdout.flush()
    if _own_output:
        os.dup2(_own_output[0], 1)


_own_output: list[int] = []
"""The descriptor of standard output after a call of `keep_streams_open`."""


def end_before_teardown(code: int) -> None:
    """Let a process in a process group end with `code` right after Python's exit functions.

    Call it last: functions registered with atexit later do not run, and a later `sys.exit` does
    not change the code.  An uncaught exception still ends the process with its own code.
    """
    if _in_process_group():
        atexit.register(_end, code)


def _in_process_group() -> bool:
    # A process in a group has imported the module; importing it here would take a second.
    distributed = sys.modules.get("torch.distributed")
    return distributed is not None and distributed.is_initialized()


def _end(code: int) -> None:
    if getattr(sys, "last_value", None) is not None:
        return
    atexit.unregister(_end)
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
