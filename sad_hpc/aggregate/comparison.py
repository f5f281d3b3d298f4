"""Every row beside ideal, optimal and random play, and by how many percent SAD is better, as the
paper has it: the numbers of compare_offline and compare_online."""

import math
from collections.abc import Iterable, Sequence

import numpy as np
import pandas as pd
from scipy import stats

from sad_hpc.aggregate.oracle import add_oracles
from sad_hpc.aggregate.order import LIMITS, reference_order, row_order
from sad_hpc.aggregate.paper import (
    AVERAGE,
    FAMILY_NAMES,
    IMPROVEMENTS,
    family_name,
    implied_values,
)
from sad_hpc.aggregate.statistics import CONFIDENCE
from sad_hpc.aggregate.summary import COLUMNS, pick
from sad_hpc.errors import SadError
from sad_hpc.evaluate.result import HIGHER_IS_BETTER
from sad_hpc.experiment.methods import BASELINES, METHODS
from sad_hpc.experiment.rows import method_of

CHANCE = 0.1
"""A method that has gone less than this share of the way from random play to the optimum, and is
not better than random play by its t interval over seeds either, is at chance."""
NOTHING = 0.01
"""Less than this share of the way is chance whatever the interval: all seeds play the same test
tasks with the same random numbers, and an interval over seeds leaves out the error they share."""
PAPER = "paper: SAD better by (%)"
NUMBERS = ("metric", "n_seeds", "mean", "std", "ci_low", "ci_high", "ideal")


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


def better_by(contender: str) -> str:
    """The column of percentages by which SAD, or a variant, is better than a row's method."""
    return f"{contender} better by (%)"


def contenders(names: Sequence[str]) -> list[str]:
    """SAD, its recipes such as `SAD+`, and its other variants."""
    return row_order(["SAD", *(name for name in names if method_of(name) == "SAD")])


def comparison(
    summaries: Sequence[pd.DataFrame], mode: str, seeds: Sequence[pd.DataFrame] = ()
) -> pd.DataFrame:
    """One mode of any summary tables (subset `all`), one row an environment and row or reference.

    Beside the summary's numbers stand
        share_of_ideal       of returns: the mean divided by the ideal learner's
        excess_over_ideal    of suboptimality and regret, of which the ideal's own may be close to
                             0, so that a quotient would say little: the mean less the ideal's
        share_of_optimum     0 for random play, 1 for optimal
        at_chance            see CHANCE
        implied_by_paper     see `implied_values`
        ... better by (%)    see `better_by`: over baselines that are not at chance; PAPER has the
                             paper's own
    and the columns of `add_oracles`, from the `seed_table` of each summary.  Environments are the
    paper's, then others, then Average: mean percentages over those of the paper's environments that
    have one.  Where nothing is of the paper's environments, these are left out.

    Raises:
        SadError: two summaries have the same method of the same family, so one must be chosen.
    """
    parts = [pick(summary, mode, "all") for summary in summaries]
    found = pd.concat(parts) if parts else pd.DataFrame(columns=list(COLUMNS))
    if (twice := found[found.duplicated(["task_family", "method"])]).size:
        raise SadError(
            f"two summaries have {twice['method'].iloc[0]} on {twice['task_family'].iloc[0]}; "
            "compare one experiment for each task family"
        )
    papers = FAMILY_NAMES if found.empty or found["task_family"].isin(FAMILY_NAMES).any() else ()
    rows = _places(found, papers)
    table = found.set_index(["task_family", "method"])[list(NUMBERS)].reindex(rows)
    table["n_seeds"] = table["n_seeds"].astype("Int64")
    _add_shares(table)
    _add_levels(table)
    table["implied_by_paper"] = _implied(table, mode)
    for name in contenders(found["method"].tolist()):
        table[better_by(name)] = _percentages(table, name)
    table[PAPER] = [_printed(mode, *row) for row in rows]
    add_oracles(table, seeds, mode)
    table = table[table[["mean", PAPER]].notna().any(axis=1)].reset_index()
    table["environment"] = table["environment"].map(family_name)
    if not papers:
        return table
    return pd.concat([table, _averages(table, mode)], ignore_index=True)


def _places(found: pd.DataFrame, papers: Iterable[str]) -> pd.MultiIndex:
    """(family, name) of every row and reference, also of methods that were not computed, and of
    the families `papers`."""
    places = []
    for family in dict.fromkeys([*papers, *sorted(found["task_family"])]):
        own = found.loc[found["task_family"] == family, "method"].tolist()
        names = [*row_order([*METHODS, *own]), *reference_order([*own, *LIMITS])]
        places += [(family, name) for name in names]
    return pd.MultiIndex.from_tuples(places, names=["environment", "method"])


def _add_shares(table: pd.DataFrame) -> None:
    """How a number stands to the ideal learner's."""
    means, ideal = table["mean"].astype(float), table["ideal"].astype(float)
    higher = table["metric"].map(HIGHER_IS_BETTER).astype("boolean").fillna(False)
    table["share_of_ideal"] = (means / ideal).where(higher & (ideal > 0))
    table["excess_over_ideal"] = (means - ideal).where(~higher)


def _add_levels(table: pd.DataFrame) -> None:
    """Where a number lies between random and optimal play."""
    means = table["mean"].astype(float)
    optimal, random = (
        means.xs(name, level="method").reindex(table.index, level=0) for name in LIMITS
    )
    sign = table["metric"].map(HIGHER_IS_BETTER).map({True: 1.0, False: -1.0}).astype(float)
    better, way = means - random, (optimal - random).where(optimal != random)
    table["share_of_optimum"] = better / way
    n = table["n_seeds"].astype(float)
    margin = table["std"].astype(float) * stats.t.ppf((1 + CONFIDENCE) / 2, n - 1) / np.sqrt(n)
    gone = sign * better / way.abs().fillna(random.abs())
    unsure = sign * better <= margin.fillna(np.inf)  # one seed has no interval
    methods = [method_of(name) for name in table.index.get_level_values("method")]
    no_learner = (gone < NOTHING) | ((gone < CHANCE) & unsure)
    table["at_chance"] = no_learner & np.array([method is not None for method in methods])


def _implied(table: pd.DataFrame, mode: str) -> list[float]:
    """Of `implied_values`, from our random play where it was computed."""
    values: dict[tuple[str, str], float] = {}
    for (family, name), row in table.iterrows():
        if name == "random" and pd.notna(row["mean"]):
            implied = implied_values(mode, family, row["metric"], float(row["mean"]))
            values |= {(family, method): value for method, value in implied.items()}
    return [values.get(place, math.nan) for place in table.index]


def _percentages(table: pd.DataFrame, contender: str) -> list[float]:
    """Of `better_by`; NaN but in the rows of baselines that have learned something."""
    own = table["mean"].xs(contender, level="method").dropna().to_dict()
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
    """A row a baseline."""
    own = table[table["environment"].isin(FAMILY_NAMES.values())]
    columns = [better_by(name) for name in contenders(table["method"].tolist())]
    means = own.groupby("method")[columns].mean().reindex(BASELINES)
    means[PAPER] = [_printed(mode, AVERAGE, baseline) for baseline in BASELINES]
    return means.reset_index().assign(environment=AVERAGE, at_chance=False)
