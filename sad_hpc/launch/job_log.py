"""Reports of a running job that its launcher prints."""

from collections.abc import Iterator
from pathlib import Path

from sad_hpc.user_code import SILENCE_PREFIX

MOST_BYTES = 2**16
"""Most bytes to read at a time; an environment may print much, and only the last lines matter."""


class JobLog:
    """A job's log, searched for reports of user code that does not return (`user_code.Watch`).

    Args:
        path: the log, which need not exist yet.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._read = path, 0

    def new_reports(self) -> Iterator[str]:
        """Yield the reports since the last call, without the program's name."""
        try:
            with self._path.open("rb") as log:
                self._read = log.seek(max(self._read, log.seek(0, 2) - MOST_BYTES))
                whole, end, _ = log.read().rpartition(b"\n")
        except OSError:
            return
        self._read += len(whole) + len(end)
        for line in whole.decode(errors="replace").splitlines():
            if line.startswith(SILENCE_PREFIX):
                yield line.removeprefix("sad-hpc: ")
