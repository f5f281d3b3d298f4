"""An experiment's results folder: its files, their reader, and its replacement as a whole.

The folder may be untrusted.  New results may repeat its rows and seeds and add others.  `--replace`
is needed to drop a row or a seed, or to change its settings.
"""

import os
import shutil
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd
from pydantic import ValidationError

from sad_hpc.aggregate.origin import Origin
from sad_hpc.aggregate.results_file import RESULTS, ExperimentResults, read_results
from sad_hpc.aggregate.series import Series, make_series
from sad_hpc.aggregate.summary import seed_table, summary_table
from sad_hpc.errors import UserError
from sad_hpc.experiment.config import differences, resolved
from sad_hpc.experiment.experiment import Element, Experiment
from sad_hpc.experiment.load import parse_experiment
from sad_hpc.experiment.methods import METHODS
from sad_hpc.storage.files import lies_in, read_whole, write_error
from sad_hpc.storage.json_files import read_json
from sad_hpc.storage.lock import held

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
ACTING = "acting.png"
"""Picture of the comparison of acting rules, which `sad-hpc report --acting` draws."""
MADE = {RESULTS, CONFIG, PROVENANCE, README, SUMMARY, ACTING, *PICTURES}
"""Names of all files that commands make in a results folder; others belong to the user."""


MOST_NAMED = 5
"""Most rows, seeds or settings that a message lists."""
CHOICE = "Choose another name=NAME (or --results) to keep them, or add --replace"
NEW, OLD = "new", "old"
"""Folders in which a replacement works, in the hidden folder beside the results folder."""


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
            return Origin.model_validate_json(read_whole(path)).model_dump()
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

    @property
    def name(self) -> str:
        """The folder's name as valid Unicode."""
        return os.fsencode(self.folder.name).decode(errors="replace")

    @property
    def family(self) -> str:
        """The task family."""
        return self.results.task_family

    @property
    def claimed(self) -> list[tuple[str, str]]:
        """The pairs of rows in `claims` of the config."""
        pairs = self.results.config.get("claims")
        return [(str(row), str(other)) for row, other in pairs] if pairs else []

    @property
    def config_text(self) -> str:
        """The content of config.yaml."""
        return read_whole(self._own(CONFIG)).decode(errors="replace")

    @property
    def notes(self) -> list[str]:
        """A sentence that names the elements without a result; empty without any."""
        names = ", ".join(f"{row} seed {seed}" for row, seed in self.results.missing)
        note = f"INCOMPLETE: no result yet of {names}; the means are over the other seeds."
        return [note] if names else []

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


def check_overwrite(
    experiment: Experiment[Any], results: Path, present: Collection[Element] | None = None
) -> None:
    """Refuse to drop or replace results of other settings.

    Args:
        experiment: the experiment of the new tables.
        results: the folder of all results.
        present: the elements of the new tables; None for all of the experiment.

    Raises:
        UserError: results/<experiment> has a (row, seed) that the new tables lack, or that has
            other settings there.
    """
    folder = ResultsFolder(results / experiment.name)
    if not folder.has(RESULTS):
        return
    try:
        stored = parse_experiment(dict(folder.results.config), str(folder.folder / RESULTS))
    except UserError as error:
        made = read_json(folder.folder / PROVENANCE)
        if isinstance(made, dict) and made.get("signature") == experiment.aggregate_signature():
            return  # the same tables, whose results.h5 is damaged
        raise UserError(
            f"{folder.folder} holds results whose config cannot be read ({error}). {CHOICE}"
        ) from None
    kept = set(experiment.elements if present is None else present)
    gaps = set(folder.results.missing)
    owned = [element for element in stored.elements if element not in gaps]
    dropped = [element for element in owned if element not in kept]
    changed = {
        row: differences(_settings(stored, row), _settings(experiment, row))
        for row in dict.fromkeys(row for row, seed in owned if (row, seed) in kept)
    }
    lost = [*dropped, *((row, seed) for row, seed in owned if changed.get(row))]
    if lost:
        reasons = [*_gaps(dropped, kept), *_few(line for each in changed.values() for line in each)]
        raise UserError(
            f"{folder.folder} holds {len(set(lost))} results that the new tables would drop or "
            f"replace ({'; '.join(reasons)}). {CHOICE}"
        )


def _settings(experiment: Experiment[Any], row: str) -> dict[str, Any]:
    """Return all settings that decide a row's numbers, except the training seed."""
    own, method = experiment.of_row(row)
    trained = own.source
    sections = ("model", "pretrain", *METHODS[method].sections)
    settings = own.data_config() | {"evaluate": resolved(own.evaluate)}
    settings |= {key: resolved(getattr(trained, key)) for key in sections}
    if own.pretrained is not None:
        settings["pretrained"] = trained.data_config()
    return settings


def _gaps(dropped: Collection[Element], kept: Collection[Element]) -> list[str]:
    """Return phrases that name the rows, seeds and other elements missing from the new tables."""
    rows, seeds = {row for row, _ in kept}, {seed for _, seed in kept}
    gaps = {
        "": [row for row, _ in dropped if row not in rows],
        "seeds ": [str(seed) for _, seed in dropped if seed not in seeds],
        "results of ": [
            f"{row} seed {seed}" for row, seed in dropped if row in rows and seed in seeds
        ],
    }
    return [f"without {what}{', '.join(_few(names))}" for what, names in gaps.items() if names]


def _few(items: Iterable[str]) -> list[str]:
    """Return the first distinct items, and the number of the others."""
    distinct = list(dict.fromkeys(items))
    more = len(distinct) - MOST_NAMED
    return [*distinct[:MOST_NAMED], f"and {more} more"] if more > 0 else distinct


@contextmanager
def replacing(folder: Path) -> Iterator[Path]:
    """Yield an empty folder to fill, which replaces `folder` if the block succeeds.

    Readers never see a mix of old and new tables.  The new folder is made in the hidden folder
    `.<name>` beside `folder`, whose lock admits one process at a time.

    Args:
        folder: the folder to replace, if it exists; a link is followed.  Its files that are not
            in MADE are kept.

    Raises:
        UserError: another process holds the lock, or a folder cannot be written; the old folder
            stays.
    """
    folder = folder.resolve()
    work = folder.parent / f".{folder.name}"
    with held(work):
        try:
            _settle(folder, work / OLD)
            shutil.rmtree(work / NEW, ignore_errors=True)  # left by a killed process
            (work / NEW).mkdir()
            yield work / NEW
            if folder.exists():
                shutil.copymode(folder, work / NEW)
                folder.rename(work / OLD)
            (work / NEW).rename(folder)
            _settle(folder, work / OLD)
        except OSError as error:
            raise write_error(folder, error) from error
        finally:
            shutil.rmtree(work / NEW, ignore_errors=True)


def _settle(folder: Path, old: Path) -> None:
    """Complete or undo a replacement that a killed process has left unfinished."""
    if not old.exists():
        return
    if not folder.exists():
        old.rename(folder)
        return
    for path in old.iterdir():
        if path.name not in MADE and not (folder / path.name).exists():
            path.rename(folder / path.name)
    shutil.rmtree(old)
