"""Tables and numbers in documents, filled in from result files.

A document marks blocks, and `sad-hpc report --fill DOCUMENT` writes their content:

    <!-- report: online paper/darkroom paper/darkroom_large -->
    <!-- end -->
    The return is <!-- report: value paper/darkroom "SAD+" online -->37.29<!-- end -->.

`online` and `headline` are tables of experiments; `value` is one mean.  Paths are relative to the
folder of all results.
"""

import re
import shlex
from collections.abc import Callable
from pathlib import Path

from sad_hpc.aggregate.formats import NOT_COMPUTED, markdown_table
from sad_hpc.aggregate.overview import ONLINE_HEADER, online_line
from sad_hpc.aggregate.results_folder import ResultsFolder
from sad_hpc.aggregate.summary import VIEWS, number, pick, view_title
from sad_hpc.errors import UserError
from sad_hpc.evaluate.result import BAYES_OPTIMAL
from sad_hpc.storage.files import atomic_path

MARK = re.compile(r"(<!-- report: (?P<what>.*?) -->)(?P<inside>.*?)(<!-- end -->)", re.DOTALL)
ROWS = ("AD", "DPT", "DIT", "SAD", "DPT*", "SAD+", "DPT*+", BAYES_OPTIMAL, "optimal", "random")
"""Columns of a `headline` table."""


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
        UserError: a block does not have the form above, or its results are missing.
    """

    def replaced(found: re.Match[str]) -> str:
        kind, *words = shlex.split(found["what"])
        if kind not in KINDS:
            raise UserError(f"{where}: unknown block {kind!r}; valid: {', '.join(KINDS)}")
        content = KINDS[kind](results, words)
        inside = f"\n{content}" if "\n" in content else content
        return f"{found[1]}{inside}{found[4]}"

    return MARK.sub(replaced, text)


def _online(results: Path, folders: list[str]) -> str:
    lines = [online_line(ResultsFolder(results / folder)) for folder in folders]
    return markdown_table(ONLINE_HEADER, lines)


def _headline(results: Path, folders: list[str]) -> str:
    """Return a table with a line for each view of each experiment, and ROWS as columns."""
    lines = []
    for folder in folders:
        one = ResultsFolder(results / folder)
        for view in VIEWS:
            if len(own := pick(one.summary, *view).set_index("row")):
                metric = own["metric"].iloc[0]
                means = [
                    number(metric, own.loc[row, "mean"]) if row in own.index else NOT_COMPUTED
                    for row in ROWS
                ]
                lines.append([one.results.title, view_title(one.summary, *view), *means])
    return markdown_table(["environment", "measure", *ROWS], lines)


def _value(results: Path, words: list[str]) -> str:
    """Return the mean of a row: FOLDER ROW MODE [SUBSET]."""
    folder, row, mode, *subset = words
    table = pick(ResultsFolder(results / folder).summary, mode, subset[0] if subset else "all")
    found = table[table["row"] == row]
    if found.empty:
        raise UserError(f"{results / folder} has no {mode} value of {row!r}")
    return number(found["metric"].iloc[0], found["mean"].iloc[0])


KINDS: dict[str, Callable[[Path, list[str]], str]] = {
    "online": _online,
    "headline": _headline,
    "value": _value,
}
"""Functions that make a block's content, by the block's first word."""
