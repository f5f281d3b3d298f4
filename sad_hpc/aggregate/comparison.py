"""The comparison table of rows and references, with SAD's improvement as the paper defines it."""

import math
from collections.abc import Iterable, Sequence

import numpy as np
import pandas as pd
from scipy import stats

from sad_hpc.aggregate.paper import (
    AVERAGE,
    FAMILY_NAMES,
    IMPROVEMENTS,
    implied_values,
)
from sad_hpc.aggregate.series import LIMITS, reference_order, row_order
from sad_hpc.aggregate.statistics import CONFIDENCE, holm, paired_difference
from sad_hpc.aggregate.summary import COLUMNS, pick
from sad_hpc.errors import UserError
from sad_hpc.evaluate.result import HIGHER_IS_BETTER
from sad_hpc.experiment.methods import BASELINES, METHODS
from sad_hpc.experiment.rows import is_recipe, method_of

CHANCE = 0.1
"""Upper bound of the share of the way from random to optimal play for a row at chance, if the row's
t interval over seeds includes random play."""
NOTHING = 0.01
"""Below this share a row is at chance regardless of its interval.  All seeds play the same test
tasks, so an interval over seeds excludes their common error."""
PAPER = "paper: SAD better by (%)"
NUMBERS = ("metric", "n_seeds", "mean", "std", "ci_low", "ci_high", "bayes_optimal")
CLAIM_COLUMNS = (
    "environment", "metric", "row", "other", "n_seeds", "difference", "low", "high", "p", "p_holm",
)  # fmt: skip


def improvement(metric: str, sad: float, baseline: float) -> float:
    """Return the improvement of SAD over a baseline in percent, as the paper defines it.

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


def better_by(contender: str) -> str:
    """Return the name of the column of percentages by which a row of SAD is better."""
    return f"{contender} better by (%)"


def contenders(names: Sequence[str]) -> list[str]:
    """Return SAD, its recipe `SAD+`, and its other rows."""
    return row_order(["SAD", *(name for name in names if method_of(name) == "SAD")])


def comparison(summaries: Sequence[pd.DataFrame], mode: str) -> pd.DataFrame:
    """Return one line for each environment and policy, for one mode of summaries (subset `all`).

    The columns beside the summary's numbers are
        share_of_bayes       returns: the mean divided by that of the Bayes-optimal learner
        excess_over_bayes    suboptimality and regret: the mean minus that of the Bayes-optimal
                             learner
        share_of_optimum     0 for random play, 1 for optimal play
        at_chance            see CHANCE
        implied_by_paper     see `implied_values`
        ... better by (%)    see `better_by`, for baselines that are not at chance; PAPER has the
                             paper's percentages

    The paper's environments come first, then all others, then Average, the mean percentages over
    the paper's environments.  Without results on the paper's environments these lines are omitted.

    Raises:
        UserError: two summaries have the same row of the same family.
    """
    parts = [pick(summary, mode, "all") for summary in summaries]
    found = pd.concat(parts) if parts else pd.DataFrame(columns=list(COLUMNS))
    if (twice := found[found.duplicated(["task_family", "row"])]).size:
        raise UserError(
            f"two summaries have {twice['row'].iloc[0]} on {twice['task_family'].iloc[0]}; "
            "compare one experiment for each task family"
        )
    papers = FAMILY_NAMES if found.empty or found["task_family"].isin(FAMILY_NAMES).any() else ()
    rows = _places(found, papers)
    table = found.set_index(["task_family", "row"])[list(NUMBERS)].reindex(rows)
    table["n_seeds"] = table["n_seeds"].astype("Int64")
    _add_shares(table)
    _add_levels(table)
    table["implied_by_paper"] = _implied(table, mode)
    for name in contenders(found["row"].tolist()):
        table[better_by(name)] = _percentages(table, name)
    table[PAPER] = [_printed(mode, *row) for row in rows]
    table = table[table[["mean", PAPER]].notna().any(axis=1)].reset_index()
    titles = dict(zip(found["task_family"], found["environment"], strict=True)) | FAMILY_NAMES
    table["environment"] = table["environment"].map(titles)
    if not papers:
        return table
    return pd.concat([table, _averages(table, mode)], ignore_index=True)


def _places(found: pd.DataFrame, papers: Iterable[str]) -> pd.MultiIndex:
    """Return (family, name) of every row and reference, including methods without a result."""
    places = []
    for family in dict.fromkeys([*papers, *sorted(found["task_family"])]):
        own = found.loc[found["task_family"] == family, "row"].tolist()
        names = [*row_order([*METHODS, *own]), *reference_order([*own, *LIMITS])]
        places += [(family, name) for name in names]
    return pd.MultiIndex.from_tuples(places, names=["environment", "row"])


def _add_shares(table: pd.DataFrame) -> None:
    """Add the comparison of each number with that of the Bayes-optimal learner."""
    means, learner = table["mean"].astype(float), table["bayes_optimal"].astype(float)
    higher = table["metric"].map(HIGHER_IS_BETTER).astype("boolean").fillna(False)
    table["share_of_bayes"] = (means / learner).where(higher & (learner > 0))
    table["excess_over_bayes"] = (means - learner).where(~higher)


def _add_levels(table: pd.DataFrame) -> None:
    """Add the position of each number between random and optimal play."""
    means = table["mean"].astype(float)
    optimal, random = (means.xs(name, level="row").reindex(table.index, level=0) for name in LIMITS)
    sign = table["metric"].map(HIGHER_IS_BETTER).map({True: 1.0, False: -1.0}).astype(float)
    better, way = means - random, (optimal - random).where(optimal != random)
    table["share_of_optimum"] = better / way
    n = table["n_seeds"].astype(float)
    margin = table["std"].astype(float) * stats.t.ppf((1 + CONFIDENCE) / 2, n - 1) / np.sqrt(n)
    gone = sign * better / way.abs().fillna(random.abs())
    unsure = sign * better <= margin.fillna(np.inf)  # one seed has no interval
    methods = [method_of(name) for name in table.index.get_level_values("row")]
    no_learner = (gone < NOTHING) | ((gone < CHANCE) & unsure)
    table["at_chance"] = no_learner & np.array([method is not None for method in methods])


def _implied(table: pd.DataFrame, mode: str) -> list[float]:
    """Return `implied_values` from our random play; NaN if that was not computed."""
    values: dict[tuple[str, str], float] = {}
    for (family, name), row in table.iterrows():
        if name == "random" and pd.notna(row["mean"]):
            implied = implied_values(mode, family, row["metric"], float(row["mean"]))
            values |= {(family, method): value for method, value in implied.items()}
    return [values.get(place, math.nan) for place in table.index]


def _percentages(table: pd.DataFrame, contender: str) -> list[float]:
    """Return `better_by`; NaN except in the lines of baselines that are not at chance."""
    own = table["mean"].xs(contender, level="row").dropna().to_dict()
    return [
        improvement(row.metric, own[family], row.mean)
        if method in BASELINES and not row.at_chance and family in own and pd.notna(row.mean)
        else math.nan
        for (family, method), row in zip(table.index, table.itertuples(), strict=True)
    ]


def _printed(mode: str, family: str, method: str) -> float:
    numbers = dict(zip(BASELINES, IMPROVEMENTS[mode].get(family, ()), strict=False))
    return numbers.get(method, math.nan)


def _averages(table: pd.DataFrame, mode: str) -> pd.DataFrame:
    """Return a line for each baseline."""
    own = table[table["environment"].isin(FAMILY_NAMES.values())]
    columns = [better_by(name) for name in contenders(table["row"].tolist())]
    means = own.groupby("row")[columns].mean().reindex(BASELINES)
    means[PAPER] = [_printed(mode, AVERAGE, baseline) for baseline in BASELINES]
    return means.reset_index().assign(environment=AVERAGE, at_chance=False)


def oracle_of(row: str) -> str | None:
    """Return the row of DPT* that differs from a row of SAD only in the labels, or None."""
    return "DPT*" + row.removeprefix("SAD") if method_of(row) == "SAD" else None


def claims(
    summaries: Sequence[pd.DataFrame], seeds: Sequence[pd.DataFrame], mode: str
) -> pd.DataFrame:
    """Return the paired differences of one mode, with CLAIM_COLUMNS.

    A positive difference means that `row` is better than `other`.  Every row of SAD is compared
    with its oracle; SAD and SAD+ also with the baselines, and SAD+ with SAD.  `p_holm` is corrected
    for all lines of the table.

    Args:
        summaries: summary of each experiment.
        seeds: `seed_table` of each experiment.
        mode: offline or online.
    """
    lines = []
    for summary, values in zip(summaries, seeds, strict=True):
        for (family, title, metric), part in pick(summary, mode, "all").groupby(
            ["task_family", "environment", "metric"], sort=False
        ):
            own = pick(values[values["task_family"] == family], mode, "all").dropna()
            by_row = {
                row: dict(zip(group["seed"], group["value"], strict=True))
                for row, group in own.groupby("row")
            }
            sign = 1 if HIGHER_IS_BETTER[metric] else -1
            for row, other in _pairs(part["row"].tolist()):
                found = paired_difference(by_row.get(row, {}), by_row.get(other, {}))
                if found is not None:
                    ends = sorted([sign * found.low, sign * found.high])
                    name = FAMILY_NAMES.get(family, title)
                    numbers = (found.n_seeds, sign * found.mean, *ends, found.p)
                    lines.append((name, metric, row, other, *numbers))
    table = pd.DataFrame(lines, columns=list(CLAIM_COLUMNS[:-1]))
    table["p_holm"] = holm(table["p"].tolist())
    return table


def _pairs(names: Sequence[str]) -> list[tuple[str, str]]:
    """Return the rows that `claims` compares."""
    known = dict.fromkeys(names)
    rows = [row for row in row_order(known) if method_of(row) == "SAD"]
    main = [row for row in rows if row == "SAD" or (is_recipe(row) and "," not in row)]
    pairs = [(row, other) for row in main for other in BASELINES if method_of(other) != "DPT*"]
    pairs += [(row, "SAD") for row in main if row != "SAD"]
    pairs += [(row, oracle) for row in rows if (oracle := oracle_of(row)) is not None]
    return [pair for pair in pairs if pair[1] in known]
