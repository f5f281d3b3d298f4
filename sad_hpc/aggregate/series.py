"""Series: the values of one row or reference in one mode and subset, with their statistics.

A replicate (a seed) is the only unit of uncertainty.  Intervals of means are Student's t intervals
over replicates.
"""

import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from sad_hpc.errors import UserError
from sad_hpc.evaluate.result import (
    ALL_MODES,
    BAYES_OPTIMAL,
    EXACT,
    MODES,
    SUBSETS,
    Measure,
    Result,
)
from sad_hpc.experiment.methods import METHODS
from sad_hpc.experiment.rows import is_recipe, method_of

LIMITS = ("optimal", "random")
"""References that bound the performance of a row."""
CONFIDENCE = 0.95


@dataclass(frozen=True)
class Statistics:
    """Statistics of one policy's headline number over replicates."""

    n_seeds: int
    """Number of replicates that have an entry in the subset."""
    mean: float
    std: float
    """Standard deviation over replicates, with n - 1 in the denominator; 0 for one replicate."""
    ci_low: float
    """With `ci_high`, the 95 % t interval of the mean; NaN for one replicate."""
    ci_high: float
    iqm: float
    """Mean over replicates of the interquartile mean over tasks."""
    iqm_low: float
    """With `iqm_high`, the 95 % t interval of `iqm`; NaN for one replicate."""
    iqm_high: float


def masked_mean(values: NDArray[np.floating], mask: NDArray[np.bool_], axis: int) -> NDArray:
    """Return the mean along `axis` over the entries in `mask`; NaN without entries."""
    total = np.where(mask, values, 0).sum(axis=axis, dtype=np.float64)
    with np.errstate(invalid="ignore"):
        return total / mask.sum(axis=axis)


def per_seed(headlines: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the (seeds,) means of (seeds, n_tasks) over entries that are not NaN."""
    return masked_mean(headlines, ~np.isnan(headlines), axis=1)


def describe(headlines: NDArray[np.float64]) -> Statistics:
    """Return the statistics of per-task headline values.

    A replicate's value is the mean, or the interquartile mean, over its tasks; all statistics are
    over replicates.  The interquartile mean drops the lowest and highest quarter of the tasks.

    Args:
        headlines: (seeds, n_tasks), NaN if a task has no entry in the subset.
    """
    known = headlines[~np.isnan(headlines).all(axis=1)]
    if not len(known):
        return Statistics(0, *[float("nan")] * 7)
    means = per_seed(known)
    iqms = np.array([stats.trim_mean(values[~np.isnan(values)], 0.25) for values in known])
    low, high = t_interval(means)
    iqm_low, iqm_high = t_interval(iqms)
    return Statistics(
        n_seeds=len(known),
        mean=float(means.mean()),
        std=float(means.std(ddof=1)) if len(known) > 1 else 0.0,
        ci_low=low,
        ci_high=high,
        iqm=float(iqms.mean()),
        iqm_low=iqm_low,
        iqm_high=iqm_high,
    )


def t_interval(values: NDArray[np.float64]) -> tuple[float, float]:
    """Return Student's t interval of the mean of (n,) values; NaN if n = 1."""
    n = len(values)
    if n == 1:
        return float("nan"), float("nan")
    half = stats.t.ppf((1 + CONFIDENCE) / 2, n - 1) * values.std(ddof=1) / np.sqrt(n)
    return float(values.mean() - half), float(values.mean() + half)


@dataclass(frozen=True)
class Series:
    """The values of one row's models, or of a reference policy on the same tasks."""

    policy: str
    """The name of the row, or of the reference, such as `optimal`."""
    is_reference: bool
    mode: str
    subset: str
    measure: Measure
    steps: NDArray[np.int32]
    """(K,): the episodes, pulls or context lengths of the columns; see `ModeResult`."""
    seeds: tuple[int, ...]
    curves: NDArray[np.float64]
    """(seeds, K): means over the tasks in the subset; NaN if the subset is empty."""
    headlines: NDArray[np.float64]
    """(seeds, n_tasks): mean over the headline columns in the subset; NaN if it is empty."""
    bayes_optimal: float = float("nan")
    """Mean of the Bayes-optimal learner in the row's result files on the same entries; NaN if
    unknown."""
    exact_learner: float = float("nan")
    """Mean of the exact learner of the row's own labels on the same entries; NaN if unknown."""

    @functools.cached_property
    def statistics(self) -> Statistics:
        """The series' numbers in the summary."""
        return describe(self.headlines)

    @property
    def empty_seeds(self) -> list[int]:
        """Seeds without any headline entry in the subset."""
        rows = zip(self.seeds, self.headlines, strict=True)
        return [seed for seed, row in rows if np.isnan(row).all()]


def of_seeds(one: Series, seeds: Iterable[int]) -> Series:
    """Return a series with those of its seeds that are in `seeds`."""
    wanted = set(seeds)
    rows = [row for row, seed in enumerate(one.seeds) if seed in wanted]
    known = tuple(one.seeds[row] for row in rows)
    return replace(one, seeds=known, curves=one.curves[rows], headlines=one.headlines[rows])


def is_learner(name: str) -> bool:
    """Return whether a reference is a Bayes-optimal learner, with any kind of memory."""
    return name == BAYES_OPTIMAL or name.startswith(f"{BAYES_OPTIMAL},")


def row_order(names: Iterable[str]) -> list[str]:
    """Sort rows: the methods first, then rows such as `SAD+`, then all others in their order."""
    methods = list(METHODS)

    def place(name: str) -> int:
        return methods.index(name) if name in METHODS else len(methods) + (not is_recipe(name))

    return sorted(dict.fromkeys(name for name in names if method_of(name)), key=place)


def reference_order(names: Iterable[str]) -> list[str]:
    """Select the references for tables: Bayes-optimal learners, then optimal and random play."""
    shown = dict.fromkeys(names)
    return [*filter(is_learner, shown), *(name for name in LIMITS if name in shown)]


def check_alike(results: Sequence[Result]) -> None:
    """Check that all results have the same family, metric and shape, and a seed's the same tasks.

    Raises:
        UserError: two results differ, so a mean over them is meaningless.
    """
    first: dict[int, Result] = {}
    for result in results:
        other = first.setdefault(result.seed, result)
        if not _equal(result.tasks, other.tasks):
            raise UserError(
                f"{result.path} and {other.path} have different test tasks: remove the folder of "
                "the older one and run `sad-hpc evaluate` again"
            )
    for result in results[1:]:
        if _kind(result) != _kind(results[0]):
            raise UserError(
                f"{result.path} and {results[0].path} differ in task family, metric or shape; "
                "remove the folder of the wrong one and run `sad-hpc evaluate` again"
            )


def _equal(tasks: dict[str, NDArray[Any]], others: dict[str, NDArray[Any]]) -> bool:
    return all(np.array_equal(tasks[name], others[name]) for name in tasks.keys() & others.keys())


def _kind(result: Result) -> tuple[Any, ...]:
    modes = [result.modes[mode] for mode in MODES]
    kinds = [(each.measure, each.values.shape, each.steps.tolist()) for each in modes]
    return (result.task_family, *kinds)


def make_series(results: Sequence[Result]) -> list[Series]:
    """Return all series of an experiment: its rows in `row_order`, then the references.

    All rows are evaluated on the same tasks, so a reference is taken once for each seed, from the
    first row that has it.  It has the subset of this row unless it has its own contexts.  A subset
    that is empty for every policy is omitted.
    """
    rows = row_order(result.row for result in results)
    ordered = sorted(results, key=lambda result: rows.index(result.row))
    names = [name for r in ordered for mode in r.modes.values() for name in mode.references]
    shared = [name for name in dict.fromkeys(names) if name != EXACT]  # each row has its own
    policies = [(row, False) for row in rows] + [(name, True) for name in shared]
    candidates = [
        _one_series(ordered, policy, is_reference, mode, subset)
        for policy, is_reference in policies
        for mode in ALL_MODES
        for subset in SUBSETS
    ]
    found = [series for series in candidates if series is not None]
    known = {(one.mode, one.subset) for one in found if not np.isnan(one.headlines).all()}
    return [one for one in found if one.subset == "all" or (one.mode, one.subset) in known]


def _one_series(
    results: list[Result], policy: str, is_reference: bool, mode: str, subset: str
) -> Series | None:
    """Return one series, or None if no result has the policy or the mode's subset."""
    by_seed: dict[int, tuple[NDArray, ...]] = {}
    for result in results:
        part, own = result.modes.get(mode), result.row == policy
        if part is None:
            continue
        values = part.references.get(policy) if is_reference else part.values if own else None
        if values is None or subset not in part.subsets or result.seed in by_seed:
            continue
        mask = part.mask(subset, policy if is_reference else None)
        last = slice(-part.measure.headline, None)
        curve = masked_mean(values, mask, axis=0)
        unknown = np.full(values.shape, np.nan)
        learners = [each for name, each in part.references.items() if is_learner(name)]
        learner = learners[0] if learners else unknown
        exact = unknown if is_reference else part.references.get(EXACT, unknown)
        heads = [
            masked_mean(each[:, last], mask[:, last], axis=1) for each in (values, learner, exact)
        ]
        by_seed[result.seed] = (curve, *heads)
    if not by_seed:
        return None
    curves, headlines, *learners = map(np.stack, zip(*by_seed.values(), strict=True))
    first = next(result.modes[mode] for result in results if mode in result.modes)
    kind = (policy, is_reference, mode, subset, first.measure, first.steps)
    return Series(
        *kind, tuple(by_seed), curves, headlines, *(_known_mean(learner) for learner in learners)
    )


def _known_mean(headlines: NDArray[Any]) -> float:
    """Return the mean over seeds of (seeds, n_tasks); NaN if none has an entry."""
    means = per_seed(headlines)
    known = means[~np.isnan(means)]
    return float(known.mean()) if len(known) else float("nan")
