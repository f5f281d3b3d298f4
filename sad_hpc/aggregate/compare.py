"""The paper's tables compare_offline and compare_online: improvement of SAD over every baseline."""

import math
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from sad_hpc.aggregate.means import chance_notes, means_cells, means_header
from sad_hpc.aggregate.paper import AVERAGE, BASELINES, FAMILY_NAMES, IMPROVEMENTS, family_name
from sad_hpc.aggregate.summary import write_table
from sad_hpc.aggregate.tables import NOT_COMPUTED, markdown_table
from sad_hpc.errors import SadError
from sad_hpc.evaluate.result import HIGHER_IS_BETTER, MODES
from sad_hpc.files import atomic_path

SCALES = {"ours": "ours (%)", "paper": "paper (%)", "count": "environments"}
"""What the CSV says about one comparison: three columns each."""


def improvement(metric: str, sad: float, baseline: float) -> float:
    """Improvement of SAD over a baseline in percent, as the paper defines it.

    (baseline - SAD) / SAD for suboptimality and regret, (SAD - baseline) / baseline for returns.
    A denominator of 0 gives an infinite improvement, or 0 if both are 0.
    """
    if HIGHER_IS_BETTER[metric]:
        difference, scale = sad - baseline, baseline
    else:
        difference, scale = baseline - sad, sad
    if difference == 0:
        return 0.0
    return 100 * difference / scale if scale else math.copysign(math.inf, difference)


def column(baseline: str, scale: str) -> str:
    """The CSV column of one comparison; `scale` is ours, paper or count."""
    return f"SAD vs {baseline} {SCALES[scale]}"


def comparison(summaries: Sequence[pd.DataFrame], mode: str) -> pd.DataFrame:
    """The comparison table of one mode from any summary tables (subset `all`).

    Rows are the paper's environments, then families that the paper does not have, then Average.
    For each baseline there are three columns: ours and the paper's, in percent and NaN where there
    is none, and the number of environments behind ours.  The average is over those of the paper's
    environments that have a number in that column.

    Raises:
        SadError: two summaries have the same method of the same family, so one must be chosen.
    """
    means = _means(summaries, mode)
    extra = sorted({family for family, _ in means} - set(FAMILY_NAMES))
    rows = [_family_row(means, mode, family) for family in [*FAMILY_NAMES, *extra]]
    rows.append(_average_row(rows[: len(FAMILY_NAMES)], mode))
    return pd.DataFrame(rows)


def _means(summaries: Sequence[pd.DataFrame], mode: str) -> dict[tuple[str, str], tuple]:
    """(metric, mean over seeds) by (task family, method)."""
    means: dict[tuple[str, str], tuple] = {}
    for summary in summaries:
        chosen = summary[
            (summary["mode"] == mode)
            & (summary["subset"] == "all")
            & summary["method"].isin(["SAD", *BASELINES])
        ]
        for row in chosen.itertuples():
            key = (row.task_family, row.method)
            if key in means:
                raise SadError(
                    f"two summaries have {row.method} on {row.task_family}; compare one experiment "
                    "for each task family"
                )
            means[key] = (row.metric, row.mean)
    return means


def _family_row(means: dict[tuple[str, str], tuple], mode: str, family: str) -> dict:
    row: dict = {"environment": family_name(family)}
    published = IMPROVEMENTS[mode].get(family, (math.nan,) * len(BASELINES))
    for baseline, paper in zip(BASELINES, published, strict=True):
        ours = math.nan
        if (family, "SAD") in means and (family, baseline) in means:
            metric, sad = means[family, "SAD"]
            ours = improvement(metric, sad, means[family, baseline][1])
        row[column(baseline, "ours")] = ours
        row[column(baseline, "paper")] = paper
        row[column(baseline, "count")] = int(not math.isnan(ours))
    return row


def _average_row(rows: list[dict], mode: str) -> dict:
    average: dict = {"environment": AVERAGE}
    for baseline, paper in zip(BASELINES, IMPROVEMENTS[mode][AVERAGE], strict=True):
        ours = [row[column(baseline, "ours")] for row in rows]
        there = [value for value in ours if not math.isnan(value)]
        average[column(baseline, "ours")] = float(np.mean(there)) if there else math.nan
        average[column(baseline, "paper")] = paper
        average[column(baseline, "count")] = len(there)
    return average


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
    if row["environment"] == AVERAGE and ours != NOT_COMPUTED:
        count = f"{row[column(baseline, 'count')]} of {len(FAMILY_NAMES)} environments; "
    return f"{ours} ({count}paper {paper})"


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
    rows = [
        [cells[0] if cells[0] == AVERAGE else rf"\emph{{{cells[0]}}}", *cells[1:]]
        for cells in comparison_cells(table)
    ]
    lines = [
        r" & ".join(_latex(cell) for cell in row) + r" \\" for row in [comparison_header(), *rows]
    ]
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
            r"\hline",
            lines[-1],
            r"\hline\hline",
            r"\end{tabular}",
            r"\end{table}",
            "",
        ]
    )


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
        table = comparison(summaries, mode)
        write_table(folder / f"compare_{mode}.csv", table)
        means = markdown_table(means_header(), means_cells(summaries, mode))
        said = [*notes, *chance_notes(summaries, mode)]
        pages = {
            "md": comparison_markdown(table, mode, said, means if len(summaries) else ""),
            "tex": comparison_latex(table, mode, notes),
        }
        for suffix, page in pages.items():
            with atomic_path(folder / f"compare_{mode}.{suffix}") as temporary:
                temporary.write_text(page, encoding="utf-8")
