"""The output of `sad-hpc report`: pages of all experiments, and numbers in documents.

The pages are the index README.md and report.html of the folder of all results.  A document marks
blocks, and `sad-hpc report --fill DOCUMENT` writes their content:

    <!-- report: online paper/darkroom paper/darkroom_large -->
    <!-- end -->
    The return is <!-- report: value paper/darkroom "SAD+" online -->37.29<!-- end -->.

`online`, `headline` and `sizes` are tables of experiments; `value` is one mean; `claim FOLDER ROW
OTHER MODE` is the difference of two rows with its interval and p value.  Paths are relative to the
folder of all results.
"""

import functools
import os
import re
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pandas as pd

from sad_hpc.aggregate.acting import draw_acting
from sad_hpc.aggregate.claims import claims
from sad_hpc.aggregate.comparison import FAMILY_NAMES, comparison
from sad_hpc.aggregate.comparison_text import Part, claim_text, comparison_parts
from sad_hpc.aggregate.formats import NOT_COMPUTED, Table, markdown_table, write_page
from sad_hpc.aggregate.origin import STAGE_HEADER, describe_stages
from sad_hpc.aggregate.readme import render
from sad_hpc.aggregate.results_file import RESULTS
from sad_hpc.aggregate.results_folder import ACTING, PICTURES, ResultsFolder
from sad_hpc.aggregate.rows import ROWS_PICTURE, draw_rows
from sad_hpc.aggregate.summary import (
    ONLINE_HEADER,
    VIEWS,
    acting_table,
    headline_cells,
    number,
    online_line,
    pick,
    view_title,
)
from sad_hpc.aggregate.training import training_curves
from sad_hpc.errors import UserError
from sad_hpc.evaluate.result import BAYES_OPTIMAL, MODES
from sad_hpc.storage.files import atomic_path, lies_in

PAGE, INDEX = "report.html", "README.md"
PAPER_GROUP = "paper"
"""The folder of experiments to compare with the paper's tables."""
DEEPEST = 2
"""Most folders between the results folder and results.h5."""
OpenFolder = Callable[[str], ResultsFolder]
"""Function that opens the results folder at a relative path."""
MARK = re.compile(r"(<!-- report: (?P<what>.*?) -->)(?P<inside>.*?)(<!-- end -->)", re.DOTALL)
ROWS = ("AD", "DPT", "DIT", "SAD", "DPT*", "SAD+", "DPT*+", BAYES_OPTIMAL, "optimal", "random")
"""Columns of a `headline` table."""
SIZES_HEADER = (
    "environment",
    "row",
    "tasks",
    "labels",
    "transitions of labels",
    "training steps",
    "random, online",
    "row, online",
)


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
                "seeds": ", ".join(sorted({str(each.seed) for each in one.results.results})),
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


def fill(document: Path, results: Path) -> None:
    """Write all blocks of a document.

    Raises:
        UserError: see `filled`, or the document cannot be read or written.
    """
    try:
        text = document.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{document} cannot be read: {error}") from error
    with atomic_path(document) as temporary:
        temporary.write_text(filled(text, results, str(document)), encoding="utf-8")


def filled(text: str, results: Path, where: str = "the text") -> str:
    """Return a document's text with all blocks filled in again.

    Args:
        text: the document's text.
        results: the folder of all results.
        where: the document's name, for errors.

    Raises:
        UserError: a block is none of KINDS, or its results are missing.
    """

    # Each folder is read once, since its statistics take seconds.
    open_folder = functools.cache(lambda folder: ResultsFolder(results / folder))

    def replaced(found: re.Match[str]) -> str:
        kind, *words = shlex.split(found["what"])
        if kind not in KINDS:
            raise UserError(f"{where}: unknown block {kind!r}; valid: {', '.join(KINDS)}")
        content = KINDS[kind](open_folder, words)
        inside = f"\n{content}" if "\n" in content else content
        return f"{found[1]}{inside}{found[4]}"

    return MARK.sub(replaced, text)


def _online(open_folder: OpenFolder, folders: list[str]) -> str:
    lines = [online_line(open_folder(folder).summary) for folder in folders]
    return markdown_table(ONLINE_HEADER, lines)


def _headline(open_folder: OpenFolder, folders: list[str]) -> str:
    """Return a table with a line for each view of each experiment, and ROWS as columns."""
    lines = []
    for folder in folders:
        one = open_folder(folder)
        for view in VIEWS:
            if len(own := pick(one.summary, *view).set_index("row")):
                metric = own["metric"].iloc[0]
                means = [
                    number(metric, own.loc[row, "mean"]) if row in own.index else NOT_COMPUTED
                    for row in ROWS
                ]
                lines.append([one.results.title, view_title(one.summary, *view), *means])
    return markdown_table(["environment", "measure", *ROWS], lines)


def _sizes(open_folder: OpenFolder, folders: list[str]) -> str:
    """Return a table of the data and the training of each row of SAD, and what it reached."""
    lines = []
    for folder in folders:
        one = open_folder(folder)
        online = pick(one.summary, "online", "all").set_index("row")
        metric = online["metric"].iloc[0]
        curves = training_curves(
            (each.result.row, each.result.seed, each.training) for each in one.results.seeds
        )
        steps = {each.row: each.steps[-1] for each in curves}
        for row, facts in one.results.rows.items():
            if facts.method == "SAD" and row in online.index:
                tasks, labels = (
                    facts.settings.get(f"data.{key}", one.results.config["data"][key])
                    for key in ("tasks", "queries_per_task")
                )
                counts = (tasks, tasks * labels, tasks * facts.label_transitions, steps[row])
                found = (number(metric, online.loc[each, "mean"]) for each in ("random", row))
                told = (f"{count:,.0f}" for count in counts)
                lines.append([one.results.title, row, *told, *found])
    return markdown_table(SIZES_HEADER, lines)


def _value(open_folder: OpenFolder, words: list[str]) -> str:
    """Return the mean of a row: FOLDER ROW MODE [SUBSET]."""
    folder, row, mode, *subset = words
    one = open_folder(folder)
    table = pick(one.summary, mode, subset[0] if subset else "all")
    found = table[table["row"] == row]
    if found.empty:
        raise UserError(f"{one.folder} has no {mode} value of {row!r}")
    return number(found["metric"].iloc[0], found["mean"].iloc[0])


def _claim(open_folder: OpenFolder, words: list[str]) -> str:
    """Return the difference of two rows: FOLDER ROW OTHER MODE."""
    folder, row, other, mode = words
    one = open_folder(folder)
    table = claim_tables([one])[mode]
    found = table[(table["row"] == row) & (table["other"] == other)]
    if found.empty:
        raise UserError(f"{one.folder} does not compare {row!r} with {other!r}: state it in claims")
    return claim_text(next(found.itertuples()))


KINDS: dict[str, Callable[[OpenFolder, list[str]], str]] = {
    "online": _online,
    "headline": _headline,
    "sizes": _sizes,
    "value": _value,
    "claim": _claim,
}
"""Functions that make a block's content, by the block's first word."""
