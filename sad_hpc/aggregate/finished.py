"""The results folder of one experiment, read back; it may be a stranger's."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pandas as pd
from pydantic import ValidationError

from sad_hpc.aggregate.origin import missing_notes, read_origin
from sad_hpc.aggregate.summary import read_summary
from sad_hpc.errors import SadError
from sad_hpc.storage.files import lies_in

T = TypeVar("T")


@dataclass(frozen=True)
class Finished:
    """A results folder, of which nothing is read that lies elsewhere."""

    folder: Path
    summary: pd.DataFrame
    provenance: dict[str, Any]
    """See `origin`."""

    @classmethod
    def of(cls, folder: Path) -> "Finished":
        """Reads summary and provenance of a folder.

        Raises:
            SadError: one of them is missing, or not what `sad-hpc aggregate` writes.
        """
        return cls(
            folder,
            _parsed(folder / "summary.csv", read_summary),
            _parsed(folder / "provenance.json", read_origin),
        )

    @property
    def name(self) -> str:
        """The folder's, as text that can be written."""
        return os.fsencode(self.folder.name).decode(errors="replace")

    @property
    def family(self) -> str:
        """The task family."""
        return str(self.summary["task_family"].iloc[0])

    @property
    def notes(self) -> list[str]:
        """What its numbers lack, as sentences that name it."""
        return [f"{self.name}: {note}" for note in missing_notes(self.provenance["missing"])]

    def has(self, name: str) -> bool:
        """Whether the folder itself has such a file."""
        return _is_own(self.folder / name, self.folder)

    def content(self, name: str) -> bytes:
        """A file's bytes.

        Raises:
            SadError: the folder itself has no such file.
        """
        return _content(self.folder / name, self.folder)


def _parsed(path: Path, parse: Callable[[bytes], T]) -> T:
    try:
        return parse(_content(path, path.parent))
    except ValidationError as error:
        first = error.errors()[0]
        reason = f"{'.'.join(map(str, first['loc']))}: {first['msg']}".removeprefix(": ")
    except ValueError as error:
        reason = " ".join(str(error).split())
    raise SadError(
        f"{path} is not what `sad-hpc aggregate` writes ({reason}); make it again, or move the "
        "folder aside"
    )


def _content(path: Path, folder: Path) -> bytes:
    if not _is_own(path, folder):
        raise SadError(
            f"{path} is missing, or is no file of this folder (but a link or a pipe); make it with "
            "`sad-hpc aggregate`, or move the folder aside"
        )
    return path.read_bytes()


def _is_own(path: Path, folder: Path) -> bool:
    """Pipes would be waited for, and links would show their reader's files to others."""
    return path.is_file() and lies_in(path, folder)
