"""compare_{offline,online}.{csv,md,tex}: the comparison as files."""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

import pandas as pd

from sad_hpc.aggregate.comparison import comparison
from sad_hpc.aggregate.comparison_cells import (
    ORACLE_HEADER,
    ORACLE_TEXT,
    PERCENT_HEADER,
    PERCENT_TEXT,
    VALUES_HEADER,
    VALUES_TEXT,
    oracle_cells,
    percent_cells,
    value_cells,
)
from sad_hpc.aggregate.paper import AVERAGE
from sad_hpc.aggregate.summary import write_table
from sad_hpc.aggregate.tables import NOT_COMPUTED, markdown_table
from sad_hpc.evaluate.result import MODES
from sad_hpc.storage.files import atomic_path

TEX = r"""\begin{table}[ht]
\centering
\caption{%s}
\label{tab_%s_%s}
\begin{tabular}{%s}
\hline\hline
%s
\hline
%s
\hline\hline
\end{tabular}
\end{table}
"""


def comparison_markdown(table: pd.DataFrame, mode: str, notes: Sequence[str] = ()) -> str:
    """Values, percentages and oracles as a Markdown page, with `notes` at its top."""
    parts = [
        f"# Every row in the {mode} evaluation",
        *notes,
        VALUES_TEXT,
        markdown_table(VALUES_HEADER, value_cells(table)),
        "## Improvement of SAD over each baseline, beside the paper's",
        PERCENT_TEXT,
        markdown_table(PERCENT_HEADER, percent_cells(table)),
    ]
    if oracles := oracle_cells(table):
        parts += ["## SAD against its oracle", ORACLE_TEXT, markdown_table(ORACLE_HEADER, oracles)]
    return "\n\n".join(part.strip() for part in parts) + "\n"


def comparison_latex(table: pd.DataFrame, mode: str, notes: Sequence[str] = ()) -> str:
    """The same as LaTeX tables; that of percentages has the paper's layout."""
    pages = [
        _values_latex(value_cells(table), mode, notes),
        _percent_latex(percent_cells(table), mode, notes),
    ]
    if oracles := oracle_cells(table):
        caption = f"SAD compared to its oracle in the {mode} evaluation."
        lines = "\n".join(map(_latex_line, oracles))
        header = _latex_line(ORACLE_HEADER)
        pages.append(TEX % (_latex(caption), "oracle", mode, "ll|rrl", header, lines))
    return "\n".join(pages)


def _values_latex(cells: Sequence[Sequence[str]], mode: str, notes: Sequence[str]) -> str:
    """A rule stands between environments."""
    lines: list[str] = []
    for before, line in zip([None, *cells], cells, strict=False):
        if before is not None and before[0] != line[0]:
            lines.append(r"\hline")
        lines.append(_latex_line(line))
    caption = " ".join([f"Every row in the {mode} evaluation.", *notes])
    header = _latex_line(VALUES_HEADER)
    return TEX % (_latex(caption), "values", mode, "ll|rcrrr", header, "\n".join(lines))


def _percent_latex(rows: Sequence[Sequence[str]], mode: str, notes: Sequence[str]) -> str:
    title = f"Performance improvements of SAD compared to baselines in the {mode} evaluation"
    caption = " ".join([f"{title}, beside the paper's.", *notes])
    lines = []
    for cells in rows:
        if cells[0].partition(":")[0] == AVERAGE:
            lines += [r"\hline", _latex_line(cells), r"\hline"]
        else:
            lines.append(_latex_line([rf"\emph{{{cells[0]}}}", *cells[1:]]))
    header = _latex_line(PERCENT_HEADER)
    if lines and lines[-1] == r"\hline":
        lines.pop()  # the table ends with lines of its own
    return TEX % (_latex(caption), "compare", mode, "c|ccc|c", header, "\n".join(lines))


def _latex_line(cells: Iterable[str]) -> str:
    return r" & ".join(_latex(cell) for cell in cells) + r" \\"


def _latex(text: str) -> str:
    text = text.replace("*", "$^*$").replace("_", r"\_").replace(NOT_COMPUTED, "--")
    text = text.replace("±", r"$\pm$")
    text = re.sub(r"(-?\d+(?:\.\d)?) %", r"$\1\\%$", text)
    return re.sub(r"(-?)∞", r"$\1\\infty$", text)


def write_comparisons(
    folder: Path,
    summaries: Sequence[pd.DataFrame],
    seeds: Sequence[pd.DataFrame],
    notes: Sequence[str] = (),
) -> None:
    """Writes compare_{offline,online}.{csv,md,tex}.

    Args:
        folder: for the files.
        summaries: see `comparison`.
        seeds: the `seed_table` of each summary.
        notes: sentences that the pages show, too.

    Raises:
        SadError: see `comparison`, or a file cannot be written.
    """
    for mode in MODES:
        table = comparison(summaries, mode, seeds)
        write_table(folder / f"compare_{mode}.csv", table)
        for suffix, page in (("md", comparison_markdown), ("tex", comparison_latex)):
            with atomic_path(folder / f"compare_{mode}.{suffix}") as temporary:
                temporary.write_text(page(table, mode, notes), encoding="utf-8")
