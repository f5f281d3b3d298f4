"""The log of a running job, as far as its launcher tells of it."""

from collections.abc import Iterator
from pathlib import Path

from sad_hpc.user_code import SILENCE_PREFIX

MOST_BYTES = 2**16
"""Read at a time: an environment may print without end, and only the last lines matter."""


class JobLog:
    """Finds reports of user code that does not return (see `user_code.Watch`).

    Args:
        path: of the log; it need not exist yet.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._read = path, 0

    def new_reports(self) -> Iterator[str]:
        """The reports since the last call, less the name of the program."""
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
