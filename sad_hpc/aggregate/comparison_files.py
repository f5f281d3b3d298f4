"""compare_{offline,online}.{csv,md,tex}: the comparison as files."""

from collections.abc import Sequence
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
from sad_hpc.aggregate.csv_table import write_table
from sad_hpc.aggregate.latex import RULE, emphasized, latex_line, latex_table
from sad_hpc.aggregate.markdown import markdown, markdown_table
from sad_hpc.aggregate.paper import AVERAGE
from sad_hpc.evaluate.result import MODES
from sad_hpc.storage.files import atomic_path


def comparison_markdown(table: pd.DataFrame, mode: str, notes: Sequence[str] = ()) -> str:
    """Values, percentages and oracles as a Markdown page, with `notes` at its top."""
    parts = [
        f"# Every row in the {mode} evaluation",
        *(f"**{markdown(note)}**" for note in notes),
        markdown(VALUES_TEXT),
        markdown_table(VALUES_HEADER, value_cells(table)),
        "## Improvement of SAD over each baseline, beside the paper's",
        markdown(PERCENT_TEXT),
        markdown_table(PERCENT_HEADER, percent_cells(table)),
    ]
    if oracles := oracle_cells(table):
        parts += ["## SAD against its oracle", markdown(ORACLE_TEXT)]
        parts.append(markdown_table(ORACLE_HEADER, oracles))
    return "\n\n".join(part.strip() for part in parts) + "\n"


def comparison_latex(table: pd.DataFrame, mode: str, notes: Sequence[str] = ()) -> str:
    """The same as LaTeX tables; that of percentages has the paper's layout."""
    pages = [
        _values_latex(value_cells(table), mode, notes),
        _percent_latex(percent_cells(table), mode, notes),
    ]
    if oracles := oracle_cells(table):
        caption = f"SAD compared to its oracle in the {mode} evaluation."
        lines = [latex_line(cells) for cells in oracles]
        pages.append(latex_table(caption, f"tab_oracle_{mode}", "ll|rrl", ORACLE_HEADER, lines))
    return "\n".join(pages)


def _values_latex(cells: Sequence[Sequence[str]], mode: str, notes: Sequence[str]) -> str:
    """A rule stands between environments."""
    lines: list[str] = []
    for before, line in zip([None, *cells], cells, strict=False):
        if before is not None and before[0] != line[0]:
            lines.append(RULE)
        lines.append(latex_line(line))
    caption = " ".join([f"Every row in the {mode} evaluation.", *notes])
    return latex_table(caption, f"tab_values_{mode}", "ll|rcrrr", VALUES_HEADER, lines)


def _percent_latex(rows: Sequence[Sequence[str]], mode: str, notes: Sequence[str]) -> str:
    title = f"Performance improvements of SAD compared to baselines in the {mode} evaluation"
    caption = " ".join([f"{title}, beside the paper's.", *notes])
    lines: list[str] = []
    for first, *others in rows:
        if first.partition(":")[0] == AVERAGE:
            lines += [RULE, latex_line([first, *others]), RULE]
        else:
            lines.append(latex_line([emphasized(first), *others]))
    if lines and lines[-1] == RULE:
        lines.pop()  # the table ends with lines of its own
    return latex_table(caption, f"tab_compare_{mode}", "c|ccc|c", PERCENT_HEADER, lines)


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
