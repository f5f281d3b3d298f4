"""Pages of all experiments: the index README.md and report.html of the folder of all results."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pandas as pd

from sad_hpc.aggregate.acting import draw_acting
from sad_hpc.aggregate.claims import claims
from sad_hpc.aggregate.comparison import FAMILY_NAMES, comparison
from sad_hpc.aggregate.comparison_text import Part, comparison_parts
from sad_hpc.aggregate.formats import Table, write_page
from sad_hpc.aggregate.origin import STAGE_HEADER, describe_stages
from sad_hpc.aggregate.readme import render
from sad_hpc.aggregate.results_file import RESULTS
from sad_hpc.aggregate.results_folder import ACTING, PICTURES, ResultsFolder
from sad_hpc.aggregate.rows import ROWS_PICTURE, draw_rows
from sad_hpc.aggregate.summary import (
    ONLINE_HEADER,
    acting_table,
    headline_cells,
    online_line,
)
from sad_hpc.errors import UserError
from sad_hpc.evaluate.result import MODES
from sad_hpc.storage.files import lies_in

PAGE, INDEX = "report.html", "README.md"
PAPER_GROUP = "paper"
"""The folder of experiments to compare with the paper's tables."""
DEEPEST = 2
"""Most folders between the results folder and results.h5."""


def overview(results: Path, home: Path | None = None) -> Path:
    """Write the pages of all experiments, the index README.md and report.html.

    Args:
        results: the folder of all results.
        home: its path in commands on the pages; by default `results`.

    Returns:
        the path of report.html.

    Raises:
        UserError: there is no experiment, or one is a link or was not written by aggregate.
    """
    found = find_results(results)
    for one in found:
        render(one, (home or results) / one.folder.relative_to(results))
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
    parts: dict[Part, dict[str, Table]] = {}
    for mode in MODES:
        for part, lines in comparison_parts(tables[mode], differences[mode]):
            parts.setdefault(part, {})[mode] = (part.header, lines)
    path = results / PAGE
    write_page(
        path,
        "report.html.jinja",
        online=(ONLINE_HEADER, [online_line(one.summary) for one in chosen]),
        comparison=parts,
        chosen=[_experiment(one, results) for one in chosen],
        experiments=[_experiment(one, results) for one in found],
        notes=notes,
    )
    return path


def draw_acting_rules(results: Path) -> list[Path]:
    """Draw acting.png in the folder of each experiment whose acting rules were chosen.

    Args:
        results: the folder of all results.

    Returns:
        paths of the pictures.
    """
    drawn = []
    for one in find_results(results):
        table = acting_table(one.results.results)
        if len(table):
            drawn.append(one.folder / ACTING)
            draw_acting(drawn[-1], one.results.title, table)
    return drawn


def draw_experiments(results: Path, folders: Sequence[str]) -> Path:
    """Draw rows.png in the folder of all results, with a panel for each of some experiments.

    Args:
        results: the folder of all results.
        folders: folders of experiments, relative to it.

    Returns:
        path of the picture.

    Raises:
        UserError: a folder has no results.
    """
    draw_rows(results / ROWS_PICTURE, [ResultsFolder(results / folder) for folder in folders])
    return results / ROWS_PICTURE


def find_results(results: Path) -> list[ResultsFolder]:
    """Return all experiments below a folder, those of the paper's task families first.

    Raises:
        UserError: see `find_folders`.
    """
    found, order = list(map(ResultsFolder, find_folders(results))), list(FAMILY_NAMES)
    return sorted(found, key=lambda one: (*order, one.family).index(one.family))


def find_folders(results: Path) -> list[Path]:
    """Return the sorted folders of all experiments below a folder, without reading their results.

    Raises:
        UserError: there is no experiment, or one is a link to a folder elsewhere.
    """
    patterns = ["/".join(["*"] * depth) for depth in range(1, DEEPEST + 1)]
    files = [file for pattern in patterns for file in results.glob(f"{pattern}/{RESULTS}")]
    for folder in (folders := sorted(file.parent for file in files)):
        if not lies_in(folder, results):
            raise UserError(
                f"{folder} is a link to a folder outside of {results}, which pages must not "
                "show: copy that folder, or remove the link"
            )
    if not folders:
        raise UserError(f"{results} has no finished experiment; make one with `sad-hpc launch`")
    return folders


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
    stated = [one.claimed for one in chosen]
    return {mode: claims(summaries, seeds, stated, mode) for mode in MODES}


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
                "seeds": ", ".join(map(str, sorted({each.seed for each in one.results.results}))),
            }
        )
    ordered = sorted(groups.items(), key=_paper_first)
    return [{"name": name, "experiments": lines} for name, lines in ordered]


def _paper_first(group: tuple[str, Any]) -> tuple[bool, str]:
    return group[0] != PAPER_GROUP, group[0]


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
