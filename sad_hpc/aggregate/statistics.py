"""Statistics over replicates: means, intervals and paired differences.

A replicate (a seed) is the only unit of uncertainty.  Intervals of means are Student's t intervals
over replicates, differences are paired by seed, and Holm's correction covers all claims of a table.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

CONFIDENCE = 0.95
RESAMPLES = 1000
BOOTSTRAP_SEED = 0


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
    """Interquartile mean over the headline values of all tasks, pooled over replicates."""
    iqm_low: float
    """With `iqm_high`, the 95 % interval of `iqm` by stratified bootstrap; see `iqm_interval`."""
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

    A replicate's value is the mean over its tasks; mean, std and the t interval are over
    replicates.  The interquartile mean drops the lowest and highest quarter of all values.

    Args:
        headlines: (seeds, n_tasks), NaN if a task has no entry in the subset.
    """
    belongs = ~np.isnan(headlines)
    means = per_seed(headlines)
    means = means[~np.isnan(means)]
    n = len(means)
    if n == 0:
        return Statistics(0, *[float("nan")] * 7)
    low, high = t_interval(means)
    iqm_low, iqm_high = iqm_interval(headlines)
    return Statistics(
        n_seeds=n,
        mean=float(means.mean()),
        std=float(means.std(ddof=1)) if n > 1 else 0.0,
        ci_low=low,
        ci_high=high,
        iqm=float(stats.trim_mean(headlines[belongs], 0.25)),
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


def iqm_interval(headlines: NDArray[np.float64]) -> tuple[float, float]:
    """Return the percentile bootstrap interval of the interquartile mean of (seeds, n_tasks).

    The bootstrap is that of rliable (Agarwal et al. 2021): it draws the replicates of each task
    anew.  NaN with one replicate, or if a task has no entry in the subset.  Its seed is fixed.
    """
    n, n_tasks = headlines.shape
    if n == 1 or np.isnan(headlines).any():
        return float("nan"), float("nan")
    generator, tasks = np.random.default_rng(BOOTSTRAP_SEED), np.arange(n_tasks)
    cut = n * n_tasks // 4  # as in `scipy.stats.trim_mean`
    means = np.empty(RESAMPLES)
    for number in range(RESAMPLES):
        drawn = headlines[generator.integers(n, size=(n, n_tasks)), tasks].ravel()
        if cut:
            drawn.partition([cut, len(drawn) - cut - 1])
        means[number] = drawn[cut : len(drawn) - cut].mean()
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(means, [tail, 1 - tail])
    return float(low), float(high)


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
