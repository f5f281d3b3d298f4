"""Numbers in documents, from the results of experiments.

A document marks blocks, and `sad-hpc report --fill DOCUMENT` writes their content:

    <!-- report: online paper/darkroom paper/darkroom_large -->
    <!-- end -->
    The return is <!-- report: value paper/darkroom "SAD+" online -->37.29<!-- end -->.

`online`, `headline` and `sizes` are tables of experiments; `value` is one mean; `claim FOLDER ROW
OTHER MODE` is the difference of two rows with its interval and p value.  Paths are relative to the
folder of all results.
"""

import re
import shlex
from collections.abc import Callable
from pathlib import Path

from sad_hpc.aggregate.all_results import AllResults
from sad_hpc.aggregate.comparison_text import claim_text
from sad_hpc.aggregate.formats import NOT_COMPUTED, markdown_table
from sad_hpc.aggregate.report import claim_tables
from sad_hpc.aggregate.summary import (
    ONLINE_HEADER,
    VIEWS,
    number,
    online_line,
    pick,
    view_title,
)
from sad_hpc.aggregate.training import trainings_of
from sad_hpc.errors import UserError
from sad_hpc.evaluate.result import BAYES_OPTIMAL
from sad_hpc.storage.files import atomic_path

MARK = re.compile(r"(<!-- report: (?P<what>.*?) -->)(?P<inside>.*?)(<!-- end -->)", re.DOTALL)
PAPER_ROWS = ("AD", "DPT", "DIT", "SAD", "DPT*")
PLUS_ROWS = ("AD+", "DIT+", "SAD+", "DPT*+")
ROWS = (*PAPER_ROWS, *PLUS_ROWS, BAYES_OPTIMAL, "optimal", "random")
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


def fill(document: Path, results: AllResults) -> None:
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


def filled(text: str, results: AllResults, where: str = "the text") -> str:
    """Return a document's text with all blocks filled in again.

    Args:
        text: the document's text.
        results: all experiments.
        where: the document's name, for errors.

    Raises:
        UserError: a block is none of KINDS, or its results are missing.
    """

    def replaced(found: re.Match[str]) -> str:
        kind, _, rest = found["what"].partition(" ")
        if kind not in KINDS:
            raise UserError(f"{where}: unknown block {kind!r}; valid: {', '.join(KINDS)}")
        try:
            content = KINDS[kind](results, shlex.split(rest))
        except ValueError as error:  # an open quote, or too few or too many words
            raise UserError(f"{where}: block {found['what']!r}: {error}") from error
        inside = f"\n{content}" if "\n" in content else content
        return f"{found[1]}{inside}{found[4]}"

    return MARK.sub(replaced, text)


def _online(results: AllResults, folders: list[str]) -> str:
    lines = [online_line(results.open(folder).summary) for folder in folders]
    return markdown_table(ONLINE_HEADER, lines)


def _headline(results: AllResults, folders: list[str]) -> str:
    """Return a table with a line for each view of each experiment, and ROWS as columns."""
    lines = []
    for folder in folders:
        one = results.open(folder)
        for view in VIEWS:
            if len(own := pick(one.summary, *view).set_index("row")):
                metric = own["metric"].iloc[0]
                means = [
                    number(metric, own.loc[row, "mean"]) if row in own.index else NOT_COMPUTED
                    for row in ROWS
                ]
                lines.append([one.results.title, view_title(one.summary, *view), *means])
    return markdown_table(["environment", "measure", *ROWS], lines)


def _sizes(results: AllResults, folders: list[str]) -> str:
    """Return a table of the data and the training of each row of SAD, and what it reached."""
    lines = []
    for folder in folders:
        one = results.open(folder)
        online = pick(one.summary, "online", "all").set_index("row")
        metric = online["metric"].iloc[0]
        steps = {each.row: each.steps[-1] for each in trainings_of(one.results)}
        for row, facts in one.results.rows.items():
            if facts.method == "SAD" and row in online.index:
                tasks, labels = (
                    facts.settings.get(f"data.{key}", one.results.config["data"][key])
                    for key in ("tasks", "queries_per_task")
                )
                counts = (tasks, tasks * labels, tasks * facts.label_transitions, steps.get(row))
                found = (number(metric, online.loc[each, "mean"]) for each in ("random", row))
                told = (NOT_COMPUTED if count is None else f"{count:,.0f}" for count in counts)
                lines.append([one.results.title, row, *told, *found])
    return markdown_table(SIZES_HEADER, lines)


def _value(results: AllResults, words: list[str]) -> str:
    """Return the mean of a row: FOLDER ROW MODE [SUBSET]."""
    folder, row, mode, *subset = words
    one = results.open(folder)
    table = pick(one.summary, mode, subset[0] if subset else "all")
    found = table[table["row"] == row]
    if found.empty:
        raise UserError(f"{folder} has no {mode} value of {row!r}")
    return number(found["metric"].iloc[0], found["mean"].iloc[0])


def _claim(results: AllResults, words: list[str]) -> str:
    """Return the difference of two rows: FOLDER ROW OTHER MODE."""
    folder, row, other, mode = words
    one = results.open(folder)
    tables = claim_tables([one])
    if mode not in tables:
        raise UserError(f"{folder} has no claims of {mode!r}; valid: {', '.join(tables)}")
    table = tables[mode]
    found = table[(table["row"] == row) & (table["other"] == other)]
    if found.empty:
        raise UserError(f"{folder} does not compare {row!r} with {other!r}: state it in claims")
    return claim_text(next(found.itertuples()))


KINDS: dict[str, Callable[[AllResults, list[str]], str]] = {
    "online": _online,
    "headline": _headline,
    "sizes": _sizes,
    "value": _value,
    "claim": _claim,
}
"""Functions that make a block's content, by the block's first word."""
