"""Standard output and error that may be closed, or lose their reader, without ending the work.

Standard output is for what Python prints alone: libraries and child processes that write to
descriptor 1 write to standard error instead, since a program may read a command's output.
"""

import io
import os
import sys
from typing import Any


class _Unread(io.FileIO):
    """A descriptor that points at nothing once nobody reads it any more (`| head`)."""

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self.fileno())
            os.close(nowhere)
            return super().write(data)


def keep_streams_open() -> None:
    """Has this process work on, whatever becomes of its standard streams.

    To be called first: in the place of a closed one (`2>&-`) the next file would be opened, and get
    what is printed.
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            # It gets the lowest number that is free; jobs and programs inherit it.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    _own_output.append(os.dup(1))  # which children do not inherit
    os.dup2(2, 1)
    for descriptor, name in ((_own_output[0], "stdout"), (2, "stderr")):
        stream = getattr(sys, name)
        replacement = io.TextIOWrapper(
            io.BufferedWriter(_Unread(descriptor, "wb", closefd=False)),
            encoding=stream.encoding if stream else "utf-8",
            errors=stream.errors if stream else "replace",
            # Unbuffered (python -u): each line at once.
            line_buffering=stream is None or stream.line_buffering or stream.write_through,
        )
        setattr(sys, name, replacement)


def hand_over_output() -> None:
    """Makes descriptor 1 standard output again, for the program that replaces this process."""
    sys.stdout.flush()
    if _own_output:
        os.dup2(_own_output[0], 1)


_own_output: list[int] = []
"""The descriptor of standard output, once `keep_streams_open` was called."""
