"""Pages of all experiments: the index README.md and report.html of the folder of all results."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pandas as pd

from sad_hpc.aggregate.acting import draw_acting
from sad_hpc.aggregate.all_results import PAPER_GROUP, AllResults
from sad_hpc.aggregate.claims import claims
from sad_hpc.aggregate.comparison import comparison
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
from sad_hpc.evaluate.result import MODES

PAGE, INDEX = "report.html", "README.md"


def overview(results: AllResults, home: Path | None = None) -> Path:
    """Write the pages of all experiments, the index README.md and report.html.

    Args:
        results: all experiments.
        home: their folder's path in commands on the pages; by default that of `results`.

    Returns:
        the path of report.html.

    Raises:
        UserError: there is no experiment, or one is a link or was not written by aggregate.
    """
    root, found, chosen = results.folder, results.found, results.beside_the_paper
    for one in found:
        render(one, (home or root) / one.folder.relative_to(root))
    notes = [f"{one.name}: {note}" for one in found for note in one.notes]
    write_page(
        root / INDEX,
        "index.md.jinja",
        groups=_groups(root, found),
        notes=notes,
        page=PAGE,
    )
    tables, differences = comparison_tables(chosen), claim_tables(chosen)
    parts: dict[Part, dict[str, Table]] = {}
    for mode in MODES:
        for part, lines in comparison_parts(tables[mode], differences[mode]):
            parts.setdefault(part, {})[mode] = (part.header, lines)
    path = root / PAGE
    write_page(
        path,
        "report.html.jinja",
        online=(ONLINE_HEADER, [online_line(one.summary) for one in chosen]),
        comparison=parts,
        chosen=[_experiment(one, root) for one in chosen],
        experiments=[_experiment(one, root) for one in found],
        notes=notes,
    )
    return path


def draw_acting_rules(results: AllResults) -> list[Path]:
    """Draw acting.png in the folder of each experiment whose acting rules were chosen.

    Args:
        results: all experiments.

    Returns:
        paths of the pictures.
    """
    drawn = []
    for one in results.found:
        table = acting_table(one.results.results)
        if len(table):
            drawn.append(one.folder / ACTING)
            draw_acting(drawn[-1], one.results.title, table)
    return drawn


def draw_experiments(results: AllResults, folders: Sequence[str]) -> Path:
    """Draw rows.png in the folder of all results, with a panel for each of some experiments.

    Args:
        results: all experiments.
        folders: relative paths of some.

    Returns:
        path of the picture.

    Raises:
        UserError: a folder has no results.
    """
    picture = results.folder / ROWS_PICTURE
    draw_rows(picture, list(map(results.open, folders)))
    return picture


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
