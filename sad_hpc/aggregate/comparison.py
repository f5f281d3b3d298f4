"""The paper's tables compare_offline and compare_online: improvement of SAD over every baseline."""

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd

from sad_hpc.aggregate.paper import AVERAGE, FAMILY_NAMES, IMPROVEMENTS, family_name
from sad_hpc.errors import SadError
from sad_hpc.evaluate.result import HIGHER_IS_BETTER
from sad_hpc.experiment.methods import BASELINES

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


def contenders(summaries: Sequence[pd.DataFrame]) -> list[str]:
    """SAD, and its variants: rows whose names begin with `SAD,`."""
    names = [name for summary in summaries for name in summary["method"].unique()]
    return ["SAD", *dict.fromkeys(name for name in names if name.startswith("SAD,"))]


def comparisons(summaries: Sequence[pd.DataFrame], mode: str) -> pd.DataFrame:
    """The comparison table of one mode, and below it that of every variant of SAD.

    Raises:
        SadError: see `comparison`.
    """
    tables = [comparison(summaries, mode)]
    for name in contenders(summaries)[1:]:
        table = comparison(summaries, mode, name)
        there = table[[column(baseline, "count") for baseline in BASELINES]].any(axis=1)
        tables.append(table[there])
    return pd.concat(tables, ignore_index=True)


def comparison(
    summaries: Sequence[pd.DataFrame], mode: str, contender: str = "SAD"
) -> pd.DataFrame:
    """The comparison table of one mode from any summary tables (subset `all`).

    Rows are the paper's environments, then families that the paper does not have, then Average.
    For each baseline there are three columns: ours and the paper's, in percent and NaN where there
    is none, and the number of environments behind ours.  The average is over those of the paper's
    environments that have a number in that column.

    Raises:
        SadError: two summaries have the same method of the same family, so one must be chosen.
    """
    means = _means(summaries, mode, contender)
    extra = sorted({family for family, _ in means} - set(FAMILY_NAMES))
    rows = [_family_row(means, mode, family, contender) for family in [*FAMILY_NAMES, *extra]]
    rows.append(_average_row(rows[: len(FAMILY_NAMES)], mode, contender))
    return pd.DataFrame(rows)


def _means(
    summaries: Sequence[pd.DataFrame], mode: str, contender: str
) -> dict[tuple[str, str], tuple]:
    """(metric, mean over seeds) by (task family, method)."""
    means: dict[tuple[str, str], tuple] = {}
    for summary in summaries:
        chosen = summary[
            (summary["mode"] == mode)
            & (summary["subset"] == "all")
            & summary["method"].isin([contender, *BASELINES])
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


def _family_row(
    means: dict[tuple[str, str], tuple], mode: str, family: str, contender: str
) -> dict:
    row: dict = {"environment": _title_of(family_name(family), contender)}
    published = _published(mode, family, contender)
    for baseline, paper in zip(BASELINES, published, strict=True):
        ours = math.nan
        if (family, contender) in means and (family, baseline) in means:
            metric, sad = means[family, contender]
            ours = improvement(metric, sad, means[family, baseline][1])
        row[column(baseline, "ours")] = ours
        row[column(baseline, "paper")] = paper
        row[column(baseline, "count")] = int(not math.isnan(ours))
    return row


def _title_of(environment: str, contender: str) -> str:
    """`Darkroom`, or `Darkroom: SAD, N_ep = 64` of a variant."""
    return environment if contender == "SAD" else f"{environment}: {contender}"


def _published(mode: str, row: str, contender: str) -> tuple[float, ...]:
    """The paper's numbers, which are of SAD itself."""
    nothing = (math.nan,) * len(BASELINES)
    return IMPROVEMENTS[mode].get(row, nothing) if contender == "SAD" else nothing


def _average_row(rows: list[dict], mode: str, contender: str) -> dict:
    average: dict = {"environment": _title_of(AVERAGE, contender)}
    published = _published(mode, AVERAGE, contender)
    for baseline, paper in zip(BASELINES, published, strict=True):
        ours = [row[column(baseline, "ours")] for row in rows]
        there = [value for value in ours if not math.isnan(value)]
        average[column(baseline, "ours")] = float(np.mean(there)) if there else math.nan
        average[column(baseline, "paper")] = paper
        average[column(baseline, "count")] = len(there)
    return average
