"""The comparison table of rows and references, beside the numbers of the paper.

SAD's improvement is the paper's: see `improvement`.
"""

import math
from collections.abc import Iterable, Sequence

import numpy as np
import pandas as pd
from scipy import stats

from sad_hpc.aggregate.series import CONFIDENCE, LIMITS, reference_order, row_order
from sad_hpc.aggregate.summary import COLUMNS, pick
from sad_hpc.errors import UserError
from sad_hpc.evaluate.result import HIGHER_IS_BETTER
from sad_hpc.experiment.methods import BASELINES, METHODS
from sad_hpc.experiment.rows import method_of
from sad_hpc.tasks.base import TaskFamily

FAMILY_NAMES = {
    "gaussian_bandit": "Gaussian Bandits",
    "bernoulli_bandit": "Bernoulli Bandits",
    "darkroom": "Darkroom",
    "darkroom_large": "Darkroom-Large",
    "miniworld": "Miniworld",
}
"""Task families in the order of the paper's tables."""

AVERAGE = "Average"

PAPER_COLUMNS = ("AD", "DPT", "DIT", "DPT*")
IMPROVEMENTS: dict[str, dict[str, tuple[float, ...]]] = {
    "offline": {
        "gaussian_bandit": (647.0, 508.9, 354.0, -5.2),
        "bernoulli_bandit": (553.4, 426.8, 289.5, -18.7),
        "darkroom": (2162.2, 2069.6, 149.3, -1.3),
        "darkroom_large": (6325.5, 6389.9, 266.8, -14.9),
        "miniworld": (687.7, 684.2, 122.1, -52.9),
        AVERAGE: (2075.2, 2015.9, 236.3, -18.6),
    },
    "online": {
        "gaussian_bandit": (933.6, 942.5, 273.9, -0.4),
        "bernoulli_bandit": (846.8, 830.9, 313.9, -0.2),
        "darkroom": (3053.9, 2893.8, 41.7, -3.4),
        "darkroom_large": (10626.9, 10221.8, 24.7, -0.1),
        "miniworld": (582.9, 580.1, 21.7, -57.3),
        AVERAGE: (3208.8, 3093.8, 135.2, -12.3),
    },
}
"""Improvements in percent over PAPER_COLUMNS, by mode and task family: the paper's tables
compare_offline and compare_online."""

CHANCE = 0.1
"""Upper bound of the share of the way from random to optimal play for a row at chance, if the row's
t interval over seeds includes random play."""
NOTHING = 0.01
"""Below this share a row is at chance regardless of its interval.  All seeds play the same test
tasks, so an interval over seeds excludes their common error."""
PAPER = "paper: SAD better by (%)"
EXACT = "exact learners: SAD better by (%)"
NUMBERS = (
    "metric", "n_seeds", "mean", "std", "ci_low", "ci_high", "bayes_optimal", "exact_learner",
)  # fmt: skip


def environment_title(name: str, family: TaskFamily) -> str:
    """Return an environment's name for readers.

    It is the paper's, the family's own title, or the id of a Gymnasium environment.

    Args:
        name: of the task family in results.
        family: of the tasks.
    """
    if name in FAMILY_NAMES:
        return FAMILY_NAMES[name]
    env = getattr(family.config, "env", None)
    return family.title or (family_name(name) if env is None else str(env).rpartition(":")[2])


def family_name(family: str) -> str:
    """Return the paper's name of a task family; other families keep their own name."""
    words = family.replace("_", " ")
    return FAMILY_NAMES.get(family, words[:1].upper() + words[1:])


def implied_values(mode: str, family: str, metric: str, random: float) -> dict[str, float]:
    """Return the values that the paper's percentages imply, by method.

    The paper has no absolute values.  This inference assumes that its AD, which learns from random
    play, performs like random play.  SAD's value follows from its percentage over AD, and the other
    values from SAD's percentages over them.  If AD was better, all values are too low (too high for
    suboptimality and regret).  Offline returns have none, since AD is worse than random play there.

    Args:
        mode: offline or online.
        family: the task family; a family that the paper does not have gives an empty dictionary.
        metric: return, suboptimality or regret.
        random: the value of our uniformly random policy in this mode; may be NaN.
    """
    if family not in FAMILY_NAMES or (mode == "offline" and HIGHER_IS_BETTER[metric]):
        return {}
    ratios = {
        name: 1 + each / 100
        for name, each in zip(PAPER_COLUMNS, IMPROVEMENTS[mode][family], strict=True)
    }
    if HIGHER_IS_BETTER[metric]:
        sad = random * ratios["AD"]
        others = {name: sad / ratios[name] for name in ratios}
    else:
        sad = random / ratios["AD"]
        others = {name: sad * ratios[name] for name in ratios}
    return {**{name: others[name] for name in PAPER_COLUMNS if name != "AD"}, "SAD": sad}


def improvement(metric: str, sad: float, baseline: float) -> float:
    """Return the improvement of SAD over a baseline in percent, as the paper defines it.

    (baseline - SAD) / |SAD| for suboptimality and regret, else (SAD - baseline) / |baseline|.
    A denominator of 0 gives an infinite improvement, or 0 if both are 0.
    """
    if HIGHER_IS_BETTER[metric]:
        difference, scale = sad - baseline, abs(baseline)
    else:
        difference, scale = baseline - sad, abs(sad)
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
                             paper's percentages, and EXACT those between the exact learners of
                             both rows' labels

    In bandits, offline numbers are means over context lengths, as in the public code of DPT.  The
    paper's environments come first, then all others, then Average, the mean percentages over
    the paper's environments.  Without results on the paper's environments these lines are omitted.

    Raises:
        UserError: two summaries have the same row of the same family.
    """
    parts = [pick(summary, shown_mode(summary, mode), "all") for summary in summaries]
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
        table[better_by(name)] = _percentages(table, name, "mean")
    table[EXACT] = _percentages(table, "SAD", "exact_learner")
    table[PAPER] = [_printed(mode, *row) for row in rows]
    table = table[table[["mean", PAPER]].notna().any(axis=1)].reset_index()
    titles = dict(zip(found["task_family"], found["environment"], strict=True)) | FAMILY_NAMES
    table["environment"] = table["environment"].map(titles)
    if not papers:
        return table
    return pd.concat([table, _averages(table, mode)], ignore_index=True)


def shown_mode(summary: pd.DataFrame, mode: str) -> str:
    """Return the mode of a summary that tables show for offline or online."""
    averaged = mode == "offline" and len(pick(summary, "lengths", "all"))
    return "lengths" if averaged else mode


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


def _percentages(table: pd.DataFrame, contender: str, column: str) -> list[float]:
    """Return `better_by` of a column's numbers.

    NaN except in the lines of baselines; for means, of those that are not at chance.
    """
    own = table[column].astype(float).xs(contender, level="row").dropna().to_dict()
    told = table[column].notna() & ~(table["at_chance"] & (column == "mean"))
    return [
        improvement(metric, own[family], value)
        if method in BASELINES and known and family in own
        else math.nan
        for (family, method), metric, value, known in zip(
            table.index, table["metric"], table[column], told, strict=True
        )
    ]


def _printed(mode: str, family: str, method: str) -> float:
    if family not in IMPROVEMENTS[mode]:
        return math.nan
    return dict(zip(PAPER_COLUMNS, IMPROVEMENTS[mode][family], strict=True)).get(method, math.nan)


def _averages(table: pd.DataFrame, mode: str) -> pd.DataFrame:
    """Return a line for each baseline."""
    own = table[table["environment"].isin(FAMILY_NAMES.values())]
    columns = [better_by(name) for name in contenders(table["row"].tolist())]
    means = own.groupby("row")[columns].mean().reindex(BASELINES)
    means[PAPER] = [_printed(mode, AVERAGE, baseline) for baseline in BASELINES]
    return means.reset_index().assign(environment=AVERAGE, at_chance=False)
