"""Means over the entries of a subset, and the numbers of a summary row over training seeds."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

CONFIDENCE = 0.95
RESAMPLES = 10_000
BOOTSTRAP_SEED = 0


@dataclass(frozen=True)
class Statistics:
    """One policy's headline number over training seeds."""

    n_seeds: int
    """Seeds behind the numbers: those that have an entry in the subset."""
    mean: float
    std: float
    """Over seeds, with n - 1 in the denominator; 0 for one seed."""
    iqm: float
    """Interquartile mean over the headline values of all tasks, pooled over seeds."""
    ci_low: float
    ci_high: float
    """95 % bootstrap interval of the mean over seeds."""


def masked_mean(values: NDArray[np.floating], mask: NDArray[np.bool_], axis: int) -> NDArray:
    """Mean along `axis` over the entries in `mask`; NaN where there is none."""
    total = np.where(mask, values, 0).sum(axis=axis, dtype=np.float64)
    with np.errstate(invalid="ignore"):
        return total / mask.sum(axis=axis)


def per_seed(headlines: NDArray[np.float64]) -> NDArray[np.float64]:
    """(seeds,): means of (seeds, n_tasks) over entries that are not NaN; NaN where none is left."""
    return masked_mean(headlines, ~np.isnan(headlines), axis=1)


def describe(headlines: NDArray[np.float64]) -> Statistics:
    """Statistics of per-task headline values.

    A seed's value is the mean over its tasks; mean, std and interval are over seeds.  The
    interquartile mean drops the lowest and highest quarter of all (seed, task) values.

    Args:
        headlines: (seeds, n_tasks), NaN where a task has no entry in the subset.
    """
    belongs = ~np.isnan(headlines)
    means = per_seed(headlines)
    means = means[~np.isnan(means)]
    n = len(means)
    if n == 0:
        return Statistics(0, *[float("nan")] * 5)
    low, high = bootstrap_interval(means)
    return Statistics(
        n_seeds=n,
        mean=float(means.mean()),
        std=float(means.std(ddof=1)) if n > 1 else 0.0,
        iqm=float(stats.trim_mean(headlines[belongs], 0.25)),
        ci_low=low,
        ci_high=high,
    )


def bootstrap_interval(values: NDArray[np.float64]) -> tuple[float, float]:
    """Percentile bootstrap interval of the mean of (n,) values; the value itself if n = 1.

    Seeded, so equal values give an equal interval.  With the usual four seeds it is narrower
    than its 95 % promise, as every bootstrap of four numbers is.
    """
    if len(values) == 1:
        return float(values[0]), float(values[0])
    generator = np.random.default_rng(BOOTSTRAP_SEED)
    means = generator.choice(values, size=(RESAMPLES, len(values))).mean(axis=1)
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(means, [tail, 1 - tail])
    return float(low), float(high)


@dataclass(frozen=True)
class Ratio:
    """A quotient of two means over seeds."""

    mean: float
    low: float
    """With `high`, Fieller's 95 % interval; NaN where a side has a single seed, or where the lower
    mean is too uncertain to bound the quotient."""
    high: float
    paired: bool
    """Whether both sides have the same seeds, which are then compared one by one."""


def ratio(over: Mapping[int, float], under: Mapping[int, float]) -> Ratio:
    """The mean of `over`, by seed, divided by that of `under`.

    Fieller's interval: the quotients r for which a t test of mean(over - r under) = 0 is not
    significant.  So 1 is outside just when the means differ by that test: a paired one where the
    seeds are the same, otherwise Welch's, with its degrees of freedom at the quotient found.
    """
    paired = set(over) == set(under)
    x = np.array(list(over.values()))
    y = np.array([under[seed] for seed in (over if paired else under)])
    if not len(x) or not len(y) or y.mean() == 0:
        return Ratio(float("nan"), float("nan"), float("nan"), False)
    low, high = float("nan"), float("nan")
    if min(len(x), len(y)) > 1:
        low, high = _fieller(x, y, paired)
    return Ratio(float(x.mean() / y.mean()), low, high, paired)


def _fieller(x: NDArray[np.float64], y: NDArray[np.float64], paired: bool) -> tuple[float, float]:
    """The ends of {r: (mean x - r mean y)^2 <= t^2 (xx - 2 r xy + r^2 yy)}; NaN if it has none."""
    xx, yy = x.var(ddof=1) / len(x), y.var(ddof=1) / len(y)
    xy = np.cov(x, y)[0, 1] / len(x) if paired else 0.0
    counts, parts = np.array([len(x), len(y)]), np.array([xx, (x.mean() / y.mean()) ** 2 * yy])
    freedom = float(counts[0] - 1 if paired else counts.sum() - 2)
    if not paired and parts.any():
        freedom = parts.sum() ** 2 / (parts**2 / (counts - 1)).sum()
    t = stats.t.ppf((1 + CONFIDENCE) / 2, freedom) ** 2
    square, product = y.mean() ** 2 - t * yy, x.mean() * y.mean() - t * xy
    if square <= 0:
        return float("nan"), float("nan")
    root = np.sqrt(max(product**2 - square * (x.mean() ** 2 - t * xx), 0))
    return float((product - root) / square), float((product + root) / square)
