"""compare_{offline,online}.{csv,md,tex}: the comparison as files, and as cells of text."""

import math
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

import pandas as pd

from sad_hpc.aggregate.comparison import (
    CHANCE,
    PAPER,
    REFERENCES,
    better_by,
    comparison,
    contenders,
)
from sad_hpc.aggregate.paper import AVERAGE, FAMILY_NAMES
from sad_hpc.aggregate.summary import mean_and_std, number, write_table
from sad_hpc.aggregate.tables import NOT_COMPUTED, markdown_table
from sad_hpc.evaluate.result import MODES
from sad_hpc.experiment.methods import BASELINES
from sad_hpc.storage.files import atomic_path

AT_CHANCE = "at chance"
VALUES_HEADER = ["Environment", "SAD", *BASELINES, *REFERENCES]
PERCENT_HEADER = ["Environment", *(f"SAD vs {baseline}" for baseline in BASELINES)]
VALUES_TEXT = (
    "Mean ± standard deviation over training seeds, the 95 % bootstrap interval of the mean, and "
    "the share of the optimum: (value - random) / (optimal - random), which for suboptimality and "
    f'regret is 1 - value / random. "{AT_CHANCE}": not better than random play by a 95 % '
    f"t interval over seeds, and less than {100 * CHANCE:.0f} % of the way to the optimum."
)
PERCENT_TEXT = (
    "The paper's measure: (baseline - SAD) / SAD for suboptimality and regret, (SAD - baseline) / "
    f'baseline for returns; its own numbers are in brackets. "{AT_CHANCE}": the baseline has '
    "learned nothing, so a percentage over it would say nothing. Averages are over so many of the "
    f"paper's environments as have a percentage. {NOT_COMPUTED}: not computed, or not in the paper."
)

TEX = r"""\begin{table}[ht]
\centering
\caption{%s}
\label{tab_compare_%s}
\begin{tabular}{c|ccc|c}
\hline\hline
%s
\hline
%s
\hline\hline
\end{tabular}
\end{table}
"""


def value_cells(table: pd.DataFrame) -> list[list[str]]:
    """The rows below VALUES_HEADER: environments that have numbers, and SAD's variants in them."""
    rows = []
    for environment, part in table[table["mean"].notna()].groupby("environment", sort=False):
        cells = {row["method"]: _value(row) for _, row in part.iterrows()}
        shown = [cells.get(name, NOT_COMPUTED) for name in VALUES_HEADER[1:]]
        rows.append([f"{environment} ({part['metric'].iloc[0]})", *shown])
        blank = [""] * (len(VALUES_HEADER) - 2)
        variants = contenders(list(cells))[1:]
        rows += [[_title(str(environment), name), cells[name], *blank] for name in variants]
    return rows


def _value(row: pd.Series) -> str:
    """Such as `26.64 ± 0.62`, `[26.16, 27.12]` and `60.1 % of optimum`, on lines of their own."""
    lines = [mean_and_std(row)]
    if row["method"] in REFERENCES:
        return lines[0]
    if row["n_seeds"] > 1:
        low, high = (number(row["metric"], row[name]) for name in ("ci_low", "ci_high"))
        lines.append(f"[{low}, {high}]")
    if row["at_chance"]:
        lines.append(AT_CHANCE)
    elif not math.isnan(row["share_of_optimum"]):
        lines.append(f"{100 * row['share_of_optimum']:.1f} % of optimum")
    return "\n".join(lines)


def percent_cells(table: pd.DataFrame) -> list[list[str]]:
    """The rows below PERCENT_HEADER, such as `149.0 % (paper 149.3 %)`: all environments and their
    average, then the same of every variant of SAD where it has numbers."""
    rows = []
    for name in contenders(table["method"].tolist()):
        for environment, part in table.groupby("environment", sort=False):
            by_method = part.set_index("method", drop=False)
            if name in ("SAD", *by_method.index) or environment == AVERAGE:
                cells = [_percent_cell(table, by_method, name, baseline) for baseline in BASELINES]
                rows.append([_title(str(environment), name), *cells])
    return rows


def _percent_cell(table: pd.DataFrame, part: pd.DataFrame, contender: str, baseline: str) -> str:
    if baseline not in part.index:
        return NOT_COMPUTED
    row, column, remarks = part.loc[baseline], better_by(contender), []
    ours = AT_CHANCE if row["at_chance"] else _percent(row[column])
    if row["environment"] == AVERAGE and ours != NOT_COMPUTED:
        own = table[table["environment"].isin(FAMILY_NAMES.values())]
        averaged = own.loc[own["method"] == baseline, column].count()
        remarks.append(f"{averaged} of {len(FAMILY_NAMES)}")
    if contender == "SAD":
        remarks.append(f"paper {_percent(row[PAPER])}")
    return f"{ours} ({'; '.join(remarks)})" if remarks else ours


def _title(environment: str, contender: str) -> str:
    """`Darkroom`, or `Darkroom: SAD, N_ep = 64` of a variant."""
    return environment if contender == "SAD" else f"{environment}: {contender}"


def _percent(value: float) -> str:
    if math.isnan(value):
        return NOT_COMPUTED
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    return f"{value:.1f} %"


def comparison_markdown(table: pd.DataFrame, mode: str, notes: Sequence[str] = ()) -> str:
    """Values and percentages as a Markdown page, with `notes` at its top."""
    parts = [
        f"# SAD and its baselines in the {mode} evaluation",
        *notes,
        VALUES_TEXT,
        markdown_table(VALUES_HEADER, value_cells(table)),
        "## Improvement of SAD over each baseline, beside the paper's",
        PERCENT_TEXT,
        markdown_table(PERCENT_HEADER, percent_cells(table)),
    ]
    return "\n\n".join(part.strip() for part in parts) + "\n"


def comparison_latex(table: pd.DataFrame, mode: str, notes: Sequence[str] = ()) -> str:
    """The percentages as a LaTeX table in the paper's layout."""
    title = f"Performance improvements of SAD compared to baselines in the {mode} evaluation"
    caption = " ".join([f"{title}, beside the paper's.", *notes])
    lines = []
    for cells in percent_cells(table):
        if cells[0].partition(":")[0] == AVERAGE:
            lines += [r"\hline", _latex_line(cells), r"\hline"]
        else:
            lines.append(_latex_line([rf"\emph{{{cells[0]}}}", *cells[1:]]))
    return TEX % (_latex(caption), mode, _latex_line(PERCENT_HEADER), "\n".join(lines[:-1]))


def _latex_line(cells: Iterable[str]) -> str:
    return r" & ".join(_latex(cell) for cell in cells) + r" \\"


def _latex(text: str) -> str:
    text = text.replace("*", "$^*$").replace("_", r"\_").replace(NOT_COMPUTED, "--")
    text = re.sub(r"(-?\d+\.\d) %", r"$\1\\%$", text)
    return re.sub(r"(-?)∞", r"$\1\\infty$", text)


def write_comparisons(
    folder: Path, summaries: Sequence[pd.DataFrame], notes: Sequence[str] = ()
) -> None:
    """Writes compare_{offline,online}.{csv,md,tex}; `notes` are sentences that they show, too.

    Raises:
        SadError: see `comparison`, or a file cannot be written.
    """
    for mode in MODES:
        table = comparison(summaries, mode)
        write_table(folder / f"compare_{mode}.csv", table)
        for suffix, page in (("md", comparison_markdown), ("tex", comparison_latex)):
            with atomic_path(folder / f"compare_{mode}.{suffix}") as temporary:
                temporary.write_text(page(table, mode, notes), encoding="utf-8")
