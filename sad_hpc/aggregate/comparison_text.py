"""The comparison tables as text: Markdown, LaTeX in the paper's layout, and their files."""

import math
import re
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from sad_hpc.aggregate.comparison import column, comparisons, contenders
from sad_hpc.aggregate.means import chance_notes, means_cells, means_header
from sad_hpc.aggregate.paper import AVERAGE, FAMILY_NAMES
from sad_hpc.aggregate.summary import write_table
from sad_hpc.aggregate.tables import NOT_COMPUTED, markdown_table
from sad_hpc.evaluate.result import MODES
from sad_hpc.experiment.methods import BASELINES
from sad_hpc.storage.files import atomic_path


def comparison_header() -> list[str]:
    """Titles of the columns that `comparison_cells` fills."""
    return ["Environment", *(f"SAD vs {baseline}" for baseline in BASELINES)]


def comparison_cells(table: pd.DataFrame) -> list[list[str]]:
    """The table as text, such as `647.0 % (paper 508.9 %)`: a row's name, then its comparisons."""
    return [
        [row["environment"], *(_cell(row, baseline) for baseline in BASELINES)]
        for _, row in table.iterrows()
    ]


def _cell(row: pd.Series, baseline: str) -> str:
    ours, paper = (_percent(row[column(baseline, scale)]) for scale in ("ours", "paper"))
    count = ""
    if _is_average(row["environment"]) and ours != NOT_COMPUTED:
        count = f"{row[column(baseline, 'count')]} of {len(FAMILY_NAMES)} environments; "
    return f"{ours} ({count}paper {paper})"


def _is_average(environment: str) -> bool:
    return environment.partition(":")[0] == AVERAGE


def _percent(value: float) -> str:
    if math.isnan(value):
        return NOT_COMPUTED
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    return f"{value:.1f} %"


def _title(mode: str) -> str:
    return f"Performance improvements of SAD compared to baselines in the {mode} evaluation"


def comparison_markdown(
    table: pd.DataFrame, mode: str, notes: Sequence[str] = (), means: str = ""
) -> str:
    """The comparison as a Markdown page; `means` is the table of the numbers behind it."""
    explanation = (
        f"{NOT_COMPUTED}: not computed, or not in the paper. Averages are over the paper's "
        "environments that have a number in the column; the paper's own are over all five."
    )
    cells = markdown_table(comparison_header(), comparison_cells(table))
    behind = ["", "## The numbers behind it", "", means] if means else []
    text = "\n\n".join([*notes, explanation])
    return "\n".join([f"# {_title(mode)}", "", cells, text, *behind, ""])


def comparison_latex(table: pd.DataFrame, mode: str, notes: Sequence[str] = ()) -> str:
    """The comparison as a LaTeX table in the paper's layout."""
    caption = " ".join([f"{_title(mode)}, beside the paper's.", *notes])
    lines = [_latex_line(comparison_header())]
    for cells in comparison_cells(table):
        if _is_average(cells[0]):
            lines += [r"\hline", _latex_line(cells), r"\hline"]
        else:
            lines.append(_latex_line([rf"\emph{{{cells[0]}}}", *cells[1:]]))
    return "\n".join(
        [
            r"\begin{table}[ht]",
            r"\centering",
            rf"\caption{{{_latex(caption)}}}",
            rf"\label{{tab_compare_{mode}}}",
            r"\begin{tabular}{c|ccc|c}",
            r"\hline\hline",
            lines[0],
            r"\hline",
            *lines[1:-1],
            r"\hline\hline",
            r"\end{tabular}",
            r"\end{table}",
            "",
        ]
    )


def _latex_line(cells: Sequence[str]) -> str:
    return r" & ".join(_latex(cell) for cell in cells) + r" \\"


def _latex(text: str) -> str:
    text = text.replace("*", "$^*$").replace("_", r"\_").replace(NOT_COMPUTED, "--")
    text = re.sub(r"(-?\d+\.\d) %", r"$\1\\%$", text)
    return re.sub(r"(-?)∞", r"$\1\\infty$", text)


def write_comparisons(
    folder: Path, summaries: Sequence[pd.DataFrame], notes: Sequence[str] = ()
) -> None:
    """Writes compare_{offline,online}.{csv,md,tex}; `notes` are sentences that go below them.

    Raises:
        SadError: see `comparison`, or a file cannot be written.
    """
    for mode in MODES:
        table = comparisons(summaries, mode)
        write_table(folder / f"compare_{mode}.csv", table)
        names = contenders(summaries)
        means = markdown_table(means_header(names), means_cells(summaries, mode, names))
        said = [*notes, *chance_notes(summaries, mode)]
        pages = {
            "md": comparison_markdown(table, mode, said, means if len(summaries) else ""),
            "tex": comparison_latex(table, mode, notes),
        }
        for suffix, page in pages.items():
            with atomic_path(folder / f"compare_{mode}.{suffix}") as temporary:
                temporary.write_text(page, encoding="utf-8")
