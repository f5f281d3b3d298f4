"""Reader of one experiment's results folder, which may be untrusted."""

import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd
from pydantic import ValidationError

from sad_hpc.aggregate.origin import missing_notes, read_origin
from sad_hpc.aggregate.results_file import RESULTS, ExperimentResults, read_results
from sad_hpc.aggregate.series import Series, make_series
from sad_hpc.aggregate.summary import seed_table, summary_table
from sad_hpc.aggregate.training import Training, training_curves
from sad_hpc.errors import UserError
from sad_hpc.storage.files import lies_in, read_whole

CONFIG, PROVENANCE, README, SUMMARY = "config.yaml", "provenance.json", "README.md", "summary.csv"
NOTES = "NOTES.md"
"""File of the authors' observations, which aggregate keeps."""
PICTURES = {
    "online.png": "Online evaluation",
    "offline.png": "Offline evaluation",
    "sweep.png": "Labels and performance along the sweep",
    "diagnosis.png": "Online returns by the rewards in the context",
    "training.png": "Pretraining: loss and label accuracy on held-out training tasks",
}
MADE = {RESULTS, CONFIG, PROVENANCE, README, SUMMARY, *PICTURES}
"""Names of all files that aggregate makes in a results folder; others belong to the user."""


@dataclass(frozen=True)
class ResultsFolder:
    """A results folder; links out of the folder are not read.

    Raises, in every property that reads a file:
        UserError: the file is missing, or was not written by `sad-hpc aggregate`.
    """

    folder: Path

    @cached_property
    def results(self) -> ExperimentResults:
        """The content of results.h5."""
        return read_results(self._own(RESULTS))

    @cached_property
    def provenance(self) -> dict[str, Any]:
        """The content of provenance.json, see `Origin`."""
        path = self._own(PROVENANCE)
        try:
            return read_origin(read_whole(path))
        except ValidationError as error:
            first = error.errors()[0]
            reason = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
        except (ValueError, RecursionError) as error:
            reason = " ".join(str(error).split())
        raise UserError(
            f"{path} was not written by `sad-hpc aggregate` ({reason}); run it again, or move the "
            "folder away"
        )

    @cached_property
    def series(self) -> list[Series]:
        """The series of all rows and references."""
        return make_series(self.results.results)

    @cached_property
    def summary(self) -> pd.DataFrame:
        """The table of summary.csv."""
        return summary_table(self.family, self.results.title, self.series)

    @cached_property
    def seeds(self) -> pd.DataFrame:
        """The headline number of every seed, see `seed_table`."""
        return seed_table(self.family, self.series)

    @cached_property
    def training(self) -> list[Training]:
        """The training curves of all rows that have any."""
        return training_curves(
            [(each.result.row, each.result.seed, each.training) for each in self.results.seeds]
        )

    @property
    def name(self) -> str:
        """The folder's name as valid Unicode."""
        return os.fsencode(self.folder.name).decode(errors="replace")

    @property
    def family(self) -> str:
        """The task family."""
        return self.results.task_family

    @property
    def config_text(self) -> str:
        """The content of config.yaml."""
        return read_whole(self._own(CONFIG)).decode(errors="replace")

    @property
    def notes(self) -> list[str]:
        """Sentences that name the elements without a result."""
        return [f"{self.name}: {note}" for note in missing_notes(self.results.missing)]

    @property
    def question(self) -> str:
        """The question that the experiment answers, from its config; may be empty."""
        question = self.results.config.get("question")
        return question if isinstance(question, str) else ""

    def has(self, name: str) -> bool:
        """Return whether the folder itself has a regular file of this name.

        A pipe would block the reader, and a link could publish the reader's files.
        """
        path = self.folder / name
        return path.is_file() and lies_in(path, self.folder)

    def _own(self, name: str) -> Path:
        path = self.folder / name
        if not self.has(name):
            raise UserError(
                f"{path} is missing, or is a link or a pipe; make it with `sad-hpc aggregate`, or "
                "move the folder away"
            )
        return path
