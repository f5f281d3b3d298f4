"""The results folder of one experiment, read back; it may be a stranger's."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import pandas as pd
from pydantic import TypeAdapter, ValidationError

from sad_hpc.aggregate.origin import missing_notes, read_origin
from sad_hpc.aggregate.summary import read_seeds, read_summary
from sad_hpc.errors import SadError
from sad_hpc.storage.files import lies_in, read_whole

T = TypeVar("T")


@dataclass(frozen=True)
class ResultsFolder:
    """A results folder, of which nothing is read that lies elsewhere.

    Raises, wherever something is read:
        SadError: it is missing, or not what `sad-hpc aggregate` writes.
    """

    folder: Path

    @cached_property
    def summary(self) -> pd.DataFrame:
        """The content of summary.csv."""
        return self._parsed("summary.csv", read_summary)

    @cached_property
    def seeds(self) -> pd.DataFrame:
        """The content of seeds.csv."""
        return self._parsed("seeds.csv", read_seeds)

    @cached_property
    def provenance(self) -> dict[str, Any]:
        """See `origin`."""
        return self._parsed("provenance.json", read_origin)

    @cached_property
    def config(self) -> dict[str, Any]:
        """The config that made it, as JSON values."""
        return self._parsed("config.json", TypeAdapter(dict[str, Any]).validate_json)

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
        """Whether the folder itself has such a file.

        Pipes would be waited for, and links would show their reader's files to others.
        """
        path = self.folder / name
        return path.is_file() and lies_in(path, self.folder)

    def content(self, name: str) -> bytes:
        """A file's bytes."""
        path = self.folder / name
        if not self.has(name):
            raise SadError(
                f"{path} is missing, or is no file of this folder (but a link or a pipe); make it "
                "with `sad-hpc aggregate`, or move the folder aside"
            )
        return read_whole(path)

    def _parsed(self, name: str, parse: Callable[[bytes], T]) -> T:
        content = self.content(name)
        try:
            return parse(content)
        except ValidationError as error:
            first = error.errors()[0]
            reason = f"{'.'.join(map(str, first['loc']))}: {first['msg']}".removeprefix(": ")
        except ValueError as error:
            reason = " ".join(str(error).split())
        raise SadError(
            f"{self.folder / name} is not what `sad-hpc aggregate` writes ({reason}); make it "
            "again, or move the folder aside"
        )
