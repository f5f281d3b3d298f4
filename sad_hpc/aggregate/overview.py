"""Pages of all experiments of a results folder: the index, report.html and the paper's tables."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pandas as pd

from sad_hpc.aggregate.comparison import claims, comparison
from sad_hpc.aggregate.comparison_text import (
    CLAIM_HEADER,
    CLAIM_TEXT,
    PERCENT_HEADER,
    PERCENT_TEXT,
    VALUES_HEADER,
    VALUES_TEXT,
    claim_cells,
    percent_cells,
    value_cells,
)
from sad_hpc.aggregate.formats import NOT_COMPUTED, write_page
from sad_hpc.aggregate.origin import STAGE_HEADER, describe_stages
from sad_hpc.aggregate.paper import FAMILY_NAMES
from sad_hpc.aggregate.readme import render
from sad_hpc.aggregate.results_file import RESULTS
from sad_hpc.aggregate.results_folder import PICTURES, ResultsFolder
from sad_hpc.aggregate.series import is_learner
from sad_hpc.aggregate.summary import headline_cells, mean_and_std, number, pick
from sad_hpc.errors import UserError
from sad_hpc.evaluate.result import HIGHER_IS_BETTER, MODES
from sad_hpc.experiment.methods import BASELINES
from sad_hpc.storage.files import lies_in

PAGE, INDEX = "report.html", "README.md"
PAPER_GROUP = "paper"
"""The folder of experiments to compare with the paper's tables."""
DEEPEST = 2
"""Most folders between the results folder and results.h5."""
ONLINE_HEADER = [
    "environment", "measure", "SAD", "SAD+", "best baseline", "oracle", "Bayes-optimal", "random",
]  # fmt: skip


def overview(results: Path) -> Path:
    """Write the pages of all experiments, the index README.md and report.html.

    Args:
        results: the folder of all results.

    Returns:
        the path of report.html.

    Raises:
        UserError: there is no experiment, or one is a link or was not written by aggregate.
    """
    found = find_results(results)
    for one in found:
        render(one.folder, one.folder)
    chosen = beside_the_paper(results, found)
    notes = [f"{one.name}: {note}" for one in found for note in one.notes]
    write_page(
        results / INDEX,
        "index.md.jinja",
        groups=_groups(results, found),
        notes=notes,
        page=PAGE,
    )
    tables, differences = comparison_tables(chosen), claim_tables(chosen)
    path = results / PAGE
    write_page(
        path,
        "report.html.jinja",
        online=(ONLINE_HEADER, [online_line(one) for one in chosen]),
        values_text=VALUES_TEXT,
        values={mode: (VALUES_HEADER, value_cells(table)) for mode, table in tables.items()},
        percent_text=PERCENT_TEXT,
        percent={mode: (PERCENT_HEADER, percent_cells(table)) for mode, table in tables.items()},
        claim_text=CLAIM_TEXT,
        claims={
            mode: (CLAIM_HEADER, claim_cells(table))
            for mode, table in differences.items()
            if len(table)
        },
        chosen=[_experiment(one, results) for one in chosen],
        experiments=[_experiment(one, results) for one in found],
        notes=notes,
    )
    return path


def find_results(results: Path) -> list[ResultsFolder]:
    """Return all experiments below a folder, those of the paper's task families first.

    Raises:
        UserError: there is no experiment, or one is a link to a folder elsewhere.
    """
    patterns = ["/".join(["*"] * depth) for depth in range(1, DEEPEST + 1)]
    paths = [path for pattern in patterns for path in results.glob(f"{pattern}/{RESULTS}")]
    found = []
    for path in sorted(paths):
        if not lies_in(path.parent, results):
            raise UserError(
                f"{path.parent} is a link to a folder outside of {results}, which pages must not "
                "show: copy that folder, or remove the link"
            )
        found.append(ResultsFolder(path.parent))
    if not found:
        raise UserError(f"{results} has no finished experiment; make one with `sad-hpc launch`")
    order = list(FAMILY_NAMES)
    return sorted(found, key=lambda one: (*order, one.family).index(one.family))


def beside_the_paper(results: Path, found: Sequence[ResultsFolder]) -> list[ResultsFolder]:
    """Return the experiments to compare with the paper: one for each task family.

    They lie in the folder `paper` if it exists, else directly in `results`.  If a family has
    several experiments, the one with the family's name counts, else the first.
    """
    group = results / PAPER_GROUP
    inside = [one for one in found if one.folder.parent == group]
    inside = inside or [one for one in found if one.folder.parent == results] or list(found)
    chosen: dict[str, ResultsFolder] = {}
    for one in inside:
        if one.family not in chosen or one.folder.name == one.family:
            chosen[one.family] = one
    return list(chosen.values())


def comparison_tables(chosen: Sequence[ResultsFolder]) -> dict[str, pd.DataFrame]:
    """Return the `comparison` of experiments, by mode."""
    return {mode: comparison([one.summary for one in chosen], mode) for mode in MODES}


def claim_tables(chosen: Sequence[ResultsFolder]) -> dict[str, pd.DataFrame]:
    """Return the `claims` of experiments, by mode."""
    summaries, seeds = [one.summary for one in chosen], [one.seeds for one in chosen]
    return {mode: claims(summaries, seeds, mode) for mode in MODES}


def online_line(one: ResultsFolder) -> list[str]:
    """Return an experiment's line below ONLINE_HEADER."""
    online = pick(one.summary, "online", "all").set_index("row")
    metric = online["metric"].iloc[0]
    sign = 1 if HIGHER_IS_BETTER[metric] else -1

    def told(name: str | None) -> str:
        return mean_and_std(online.loc[name]) if name in online.index else NOT_COMPUTED

    def mean(name: str | None) -> str:
        return number(metric, online.loc[name, "mean"]) if name in online.index else NOT_COMPUTED

    known = [name for name in BASELINES if name != "DPT*" and name in online.index]
    best = max(known, key=lambda name: sign * online.loc[name, "mean"], default=None)
    oracle = "DPT*+" if "DPT*+" in online.index else "DPT*"
    learner = next((name for name in online.index if is_learner(name)), None)
    return [
        one.results.title,
        f"{metric} {'↑' if sign > 0 else '↓'}",
        told("SAD"),
        told("SAD+"),
        f"{told(best)} ({best})" if best else NOT_COMPUTED,
        f"{told(oracle)} ({oracle})" if oracle in online.index else NOT_COMPUTED,
        mean(learner),
        mean("random"),
    ]


def _groups(results: Path, found: Sequence[ResultsFolder]) -> list[dict[str, Any]]:
    """Return the folders of the index, each with the lines of its experiments."""
    groups: dict[str, list[dict[str, str]]] = {}
    for one in found:
        parent = os.fsencode(one.folder.parent.relative_to(results)).decode(errors="replace")
        groups.setdefault("" if parent == "." else parent, []).append(
            {
                "name": one.name,
                "link": _link(one.folder, results) + "/README.md",
                "environment": one.results.title,
                "question": one.question or "–",
                "seeds": ", ".join(sorted({str(each.seed) for each in one.results.results})),
            }
        )
    return [{"name": name, "experiments": lines} for name, lines in sorted(groups.items())]


def _experiment(one: ResultsFolder, results: Path) -> dict[str, Any]:
    return {
        "id": _link(one.folder, results),
        "anchor": os.fsencode(one.folder.relative_to(results)).decode(errors="replace"),
        "name": one.name,
        "environment": one.results.title,
        "question": one.question,
        "headline": headline_cells(one.summary),
        "pictures": [
            {"title": title, "link": _link(one.folder / name, results)}
            for name, title in PICTURES.items()
            if one.has(name)
        ],
        "file": _link(one.folder / RESULTS, results),
        "provenance": one.provenance,
        "stages": (STAGE_HEADER, describe_stages(one.provenance)),
        "config": one.config_text,
    }


def _link(file: Path, results: Path) -> str:
    """Return the relative link to a file, with special characters quoted."""
    return quote(os.fsencode(file.relative_to(results)))
