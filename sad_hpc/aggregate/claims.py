"""Claims: paired differences between rows, with Holm's correction over those of an experiment."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy import stats

from sad_hpc.aggregate.comparison import FAMILY_NAMES, shown_mode
from sad_hpc.aggregate.series import row_order, t_interval
from sad_hpc.aggregate.summary import pick
from sad_hpc.evaluate.result import HIGHER_IS_BETTER
from sad_hpc.experiment.methods import BASELINES
from sad_hpc.experiment.rows import is_recipe, method_of

CLAIM_COLUMNS = (
    "environment", "metric", "row", "other", "n_seeds", "difference", "low", "high", "p", "p_holm",
)  # fmt: skip

Pair = tuple[str, str]
"""Names of two rows, of which the first is claimed to be better."""


@dataclass(frozen=True)
class Difference:
    """A difference of two rows, paired by seed."""

    n_seeds: int
    mean: float
    low: float
    """With `high`, the 95 % t interval of the mean difference."""
    high: float
    p: float
    """p value of the t test that the mean difference is 0."""


def paired_difference(over: Mapping[int, float], under: Mapping[int, float]) -> Difference | None:
    """Return the mean of `over` minus `under` over their common seeds; None with less than two."""
    seeds = sorted(set(over) & set(under))
    if len(seeds) < 2:
        return None
    values = np.array([over[seed] - under[seed] for seed in seeds])
    mean, deviation = float(values.mean()), float(values.std(ddof=1))
    if deviation == 0:
        return Difference(len(seeds), mean, mean, mean, 0.0 if mean else 1.0)
    p = float(stats.ttest_1samp(values, 0).pvalue)
    return Difference(len(seeds), mean, *t_interval(values), p)


def holm(values: Sequence[float]) -> list[float]:
    """Return p values corrected by Holm's step-down method for testing all of them."""
    corrected, largest = [0.0] * len(values), 0.0
    for rank, place in enumerate(np.argsort(values, kind="stable")):
        largest = max(largest, min(1.0, (len(values) - rank) * values[place]))
        corrected[place] = largest
    return corrected


def oracle_of(row: str) -> str | None:
    """Return the row of DPT* that differs from a row of SAD only in the labels, or None."""
    return "DPT*" + row.removeprefix("SAD") if method_of(row) == "SAD" else None


def claims(
    summaries: Sequence[pd.DataFrame],
    seeds: Sequence[pd.DataFrame],
    stated: Sequence[Sequence[Pair]],
    mode: str,
) -> pd.DataFrame:
    """Return the paired differences of one mode, with CLAIM_COLUMNS.

    A positive difference means that `row` is better than `other`.  The pairs are those that the
    experiment's config states.  If it states none, every row of SAD is compared with its oracle;
    SAD and SAD+ also with the baselines, and SAD+ with SAD.  `p_holm` is corrected for all lines of
    the experiment, so that it is the same in every table.

    Args:
        summaries: summary of each experiment.
        seeds: `seed_table` of each experiment.
        stated: pairs (row, other) of each experiment's config.
        mode: offline or online; in bandits offline is the mean over context lengths.
    """
    tables = []
    for summary, values, pairs in zip(summaries, seeds, stated, strict=True):
        shown, lines = shown_mode(summary, mode), []
        for (family, title, metric), part in pick(summary, shown, "all").groupby(
            ["task_family", "environment", "metric"], sort=False
        ):
            own = pick(values[values["task_family"] == family], shown, "all").dropna()
            by_row = {
                row: dict(zip(group["seed"], group["value"], strict=True))
                for row, group in own.groupby("row")
            }
            sign = 1 if HIGHER_IS_BETTER[metric] else -1
            for row, other in pairs or _pairs(part["row"].tolist()):
                found = paired_difference(by_row.get(row, {}), by_row.get(other, {}))
                if found is not None:
                    ends = sorted([sign * found.low, sign * found.high])
                    name = FAMILY_NAMES.get(family, title)
                    numbers = (found.n_seeds, sign * found.mean, *ends, found.p)
                    lines.append((name, metric, row, other, *numbers))
        table = pd.DataFrame(lines, columns=list(CLAIM_COLUMNS[:-1]))
        tables.append(table.assign(p_holm=holm(table["p"].tolist())))
    return pd.concat(tables, ignore_index=True)


def _pairs(names: Sequence[str]) -> list[Pair]:
    """Return the rows that `claims` compares if a config states no pairs."""
    known = dict.fromkeys(names)
    rows = [row for row in row_order(known) if method_of(row) == "SAD"]
    main = [row for row in rows if row == "SAD" or (is_recipe(row) and "," not in row)]
    pairs = [(row, other) for row in main for other in BASELINES if method_of(other) != "DPT*"]
    pairs += [(row, "SAD") for row in main if row != "SAD"]
    pairs += [(row, oracle) for row in rows if (oracle := oracle_of(row)) is not None]
    return [pair for pair in pairs if pair[1] in known]
