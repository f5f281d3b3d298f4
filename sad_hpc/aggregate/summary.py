"""The summary of an experiment: one line for each policy, mode and subset."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict

import numpy as np
import pandas as pd

from sad_hpc.aggregate.formats import NOT_COMPUTED, Table
from sad_hpc.aggregate.series import Series, is_learner, per_seed
from sad_hpc.evaluate.acting import ActingRule
from sad_hpc.evaluate.result import HIGHER_IS_BETTER, Result
from sad_hpc.experiment.methods import BASELINES
from sad_hpc.experiment.rows import method_of

COLUMNS = (
    "task_family", "environment", "row", "mode", "metric", "subset",
    "n_seeds", "mean", "std", "ci_low", "ci_high", "iqm", "iqm_low", "iqm_high", "bayes_optimal",
    "exact_learner",
)  # fmt: skip
SEED_COLUMNS = ("task_family", "row", "mode", "subset", "seed", "value")
VIEWS = (
    ("offline", "all"),
    ("offline", "reward_seen"),
    ("lengths", "all"),
    ("online", "all"),
    ("sampled", "all"),
)
"""(mode, subset): the columns of a headline table."""
ONLINE_HEADER = [
    "environment", "measure", "SAD", "SAD+", "best baseline", "oracle", "Bayes-optimal", "random",
]  # fmt: skip
NO_ORACLE = [name for name in BASELINES if name != "DPT*"]
"""Baselines that learn without optimal labels."""
KINDS = {"sampled": "sampled", "greedy_after_reward": "greedy after a reward", "mean": "mean"}
"""The kinds of acting rules, and their titles."""
DECIMALS = {"suboptimality": 4}
"""Decimals of a metric's numbers; two by default."""


def summary_table(family: str, title: str, series: Sequence[Series]) -> pd.DataFrame:
    """Return one line for each series, with COLUMNS; `row` may be the name of a reference.

    Args:
        family: the task family.
        title: the environment's title.
        series: the series of one experiment.
    """
    lines = [
        {
            "task_family": family,
            "environment": title,
            "row": one.policy,
            "mode": one.mode,
            "metric": one.measure.metric,
            "subset": one.subset,
            **asdict(one.statistics),
            "bayes_optimal": one.bayes_optimal,
            "exact_learner": one.exact_learner,
        }
        for one in series
    ]
    return pd.DataFrame(lines, columns=list(COLUMNS))


def seed_table(family: str, series: Sequence[Series]) -> pd.DataFrame:
    """Return SEED_COLUMNS of every seed of a summary; NaN if its subset is empty."""
    lines = [
        (family, one.policy, one.mode, one.subset, seed, value)
        for one in series
        for seed, value in zip(one.seeds, per_seed(one.headlines), strict=True)
    ]
    return pd.DataFrame(lines, columns=list(SEED_COLUMNS))


def pick(table: pd.DataFrame, mode: str, subset: str) -> pd.DataFrame:
    """Return the lines of one mode and subset."""
    return table[(table["mode"] == mode) & (table["subset"] == subset)]


def headline_cells(summary: pd.DataFrame) -> Table:
    """Return the headline table: mean ± standard deviation over seeds of every policy.

    The last column counts the seeds, column by column where the columns differ.
    """
    views = [view for view in VIEWS if len(pick(summary, *view))]
    online = pick(summary, "online", "all").set_index("row")
    exact, metric = online["exact_learner"].dropna(), online["metric"].iloc[0]
    header = ["row", *(view_title(summary, *view) for view in views), "seeds"]
    if len(exact):
        header.insert(-1, "online, exact learner")
    lines = []
    for row in summary["row"].unique():
        own = [pick(summary[summary["row"] == row], *view) for view in views]
        counts = [str(int(each["n_seeds"].iloc[0])) if len(each) else NOT_COMPUTED for each in own]
        known = set(counts) - {NOT_COMPUTED}
        seeds = known.pop() if len(known) == 1 else ", ".join(counts)
        shown = [mean_and_std(each.iloc[0]) if len(each) else NOT_COMPUTED for each in own]
        if len(exact):
            shown.append(number(metric, exact[row]) if row in exact else NOT_COMPUTED)
        lines.append([row, *shown, seeds])
    return header, lines


def view_title(summary: pd.DataFrame, mode: str, subset: str) -> str:
    """Return a title such as `offline return, reward seen`."""
    metric = pick(summary, mode, subset)["metric"].iloc[0]
    if mode == "sampled":
        return f"online {metric}, temperature 1"
    if mode == "lengths":
        return f"offline {metric}, mean over context lengths"
    return f"{mode} {metric}" + (", reward seen" if subset == "reward_seen" else "")


def sentences(summary: pd.DataFrame) -> list[str]:
    """Return at most three sentences about the online numbers of a summary."""
    online = pick(summary, "online", "all").set_index("row")
    metric = online["metric"].iloc[0]
    verb = {"return": "returns", "regret": "has a regret of"}.get(metric, f"has a {metric} of")

    def told(name: str) -> str:
        return mean_and_std(online.loc[name])

    found = []
    first = _best(online, [name for name in online.index if method_of(name) == "SAD"])
    if first is not None:
        found.append(f"Online, {first} {verb} {told(first)}, the best mean of all rows of SAD.")
    others = {
        "best baseline": _best(online, _baselines(online)),
        "best oracle": _best(online, [name for name in online.index if method_of(name) == "DPT*"]),
    }
    if known := [f"the {kind} {name} {told(name)}" for kind, name in others.items() if name]:
        found.append(f"For comparison: {', '.join(known)}.")
    learner = _learner(online)
    limits = [name for name in (learner, "optimal", "random") if name in online.index]
    titles = {learner: "the Bayes-optimal learner", "optimal": "an optimal policy"}
    titles["random"] = "random play"
    if limits:
        means = {name: number(metric, online.loc[name, "mean"]) for name in limits}
        text = ", ".join(f"{titles[name]} {mean}" for name, mean in means.items())
        found.append(f"References: {text}.")
    return found


def online_line(summary: pd.DataFrame) -> list[str]:
    """Return the line of a summary below ONLINE_HEADER."""
    online = pick(summary, "online", "all").set_index("row")
    metric = online["metric"].iloc[0]

    def told(name: str | None) -> str:
        return mean_and_std(online.loc[name]) if name in online.index else NOT_COMPUTED

    def mean(name: str | None) -> str:
        return number(metric, online.loc[name, "mean"]) if name in online.index else NOT_COMPUTED

    best = _best(online, _baselines(online))
    oracle = "DPT*+" if "DPT*+" in online.index else "DPT*"
    return [
        online["environment"].iloc[0],
        f"{metric} {'↑' if HIGHER_IS_BETTER[metric] else '↓'}",
        told("SAD"),
        told("SAD+"),
        f"{told(best)} ({best})" if best else NOT_COMPUTED,
        f"{told(oracle)} ({oracle})" if oracle in online.index else NOT_COMPUTED,
        mean(_learner(online)),
        mean("random"),
    ]


def _baselines(online: pd.DataFrame) -> list[str]:
    """Return the rows of methods that learn without optimal labels, other than SAD."""
    return [name for name in online.index if method_of(name) in NO_ORACLE]


def _best(online: pd.DataFrame, names: Iterable[str]) -> str | None:
    """Return the name with the best mean; None if the table has none of the names."""
    known = [name for name in names if name in online.index]
    sign = 1 if HIGHER_IS_BETTER[online["metric"].iloc[0]] else -1
    return max(known, key=lambda name: sign * online.loc[name, "mean"], default=None)


def _learner(online: pd.DataFrame) -> str | None:
    """Return the name of the first Bayes-optimal learner, if the table has any."""
    return next((name for name in online.index if is_learner(name)), None)


def mean_and_std(line: pd.Series) -> str:
    """Return a text such as `26.77 ± 0.96` of a summary's line, or `26.77` for one seed."""
    mean = number(line["metric"], line["mean"])
    return f"{mean} ± {number(line['metric'], line['std'])}" if line["n_seeds"] > 1 else mean


def number(metric: str, value: float) -> str:
    """Return a number with the decimals of its metric."""
    return "NaN" if np.isnan(value) else f"{value:.{DECIMALS.get(metric, 2)}f}"


def acting_table(results: Iterable[Result]) -> pd.DataFrame:
    """Return one line for each (row, seed, rule) of models whose rule was chosen.

    Columns: row, seed, temperature (0: greedy), kind (sampled, greedy_after_reward or mean), score
    (headline number on tasks of the training split), error (standard error of its difference from
    the best score; NaN: not known), and whether the rule was chosen.
    """
    lines = [
        (each.row, each.seed, rule.temperature, _kind(rule), score, error, i == found.chosen)
        for each in results
        if (found := each.selection) is not None
        for i, (rule, score, error) in enumerate(
            zip(found.rules, found.scores, found.errors or [np.nan] * len(found.rules), strict=True)
        )
    ]
    columns = ["row", "seed", "temperature", "kind", "score", "error", "chosen"]
    return pd.DataFrame(lines, columns=columns)


def _kind(rule: ActingRule) -> str:
    return next((kind for kind in KINDS if getattr(rule, kind, False)), "sampled")
