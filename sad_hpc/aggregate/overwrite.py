"""Protection of results: tables of other settings are replaced only with `--replace`.

A results folder has the config that made it.  New tables may repeat its rows and seeds and add
others.  `--replace` is needed to drop a row or a seed, or to change its settings.
"""

from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

from sad_hpc.aggregate.origin import Element
from sad_hpc.aggregate.results_file import RESULTS
from sad_hpc.aggregate.results_folder import ResultsFolder
from sad_hpc.errors import UserError
from sad_hpc.experiment.config import differences, resolved
from sad_hpc.experiment.experiment import Experiment
from sad_hpc.experiment.load import parse_experiment
from sad_hpc.experiment.methods import METHODS
from sad_hpc.storage.files import read_json

MOST_NAMED = 5
"""Most rows, seeds or settings that a message lists."""
CHOICE = "Choose another name=NAME (or --results) to keep them, or add --replace"


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
        made = read_json(folder.folder / "provenance.json")
        if isinstance(made, dict) and made.get("signature") == experiment.aggregate_signature():
            return  # the same tables, whose results.h5 is damaged
        raise UserError(
            f"{folder.folder} holds results whose config cannot be read ({error}). {CHOICE}"
        ) from None
    kept = set(experiment.elements if present is None else present)
    held = _elements(folder, stored)
    dropped = [element for element in held if element not in kept]
    changed = {
        row: differences(_settings(stored, row), _settings(experiment, row))
        for row in dict.fromkeys(row for row, seed in held if (row, seed) in kept)
    }
    lost = [*dropped, *((row, seed) for row, seed in held if changed.get(row))]
    if lost:
        reasons = [*_gaps(dropped, kept), *_few(line for each in changed.values() for line in each)]
        raise UserError(
            f"{folder.folder} holds {len(set(lost))} results that the new tables would drop or "
            f"replace ({'; '.join(reasons)}). {CHOICE}"
        )


def _elements(folder: ResultsFolder, stored: Experiment[Any]) -> list[Element]:
    """Return the (row, seed)s of the tables in a folder."""
    missing = set(folder.results.missing)
    return [element for element in stored.elements if element not in missing]


def _settings(experiment: Experiment[Any], row: str) -> dict[str, Any]:
    """Return all settings that decide a row's numbers, except the training seed."""
    own, method = experiment.of_row(row)
    trained = own.source
    sections = ("model", "pretrain", *METHODS[method].sections)
    settings = {key: resolved(getattr(own, key)) for key in ("task", "data", "evaluate")}
    settings |= {key: resolved(getattr(trained, key)) for key in sections}
    if own.pretrained is not None:
        settings["pretrained"] = {key: resolved(getattr(trained, key)) for key in ("task", "data")}
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
