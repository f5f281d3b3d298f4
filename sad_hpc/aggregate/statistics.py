"""Statistics over training seeds: means, intervals and ratios."""

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
    """Statistics of one policy's headline number over training seeds."""

    n_seeds: int
    """Number of seeds that have an entry in the subset."""
    mean: float
    std: float
    """Standard deviation over seeds, with n - 1 in the denominator; 0 for one seed."""
    iqm: float
    """Interquartile mean over the headline values of all tasks, pooled over seeds."""
    ci_low: float
    ci_high: float
    """95 % bootstrap interval of the mean over seeds."""


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

    A seed's value is the mean over its tasks; mean, std and interval are over seeds.  The
    interquartile mean drops the lowest and highest quarter of all (seed, task) values.

    Args:
        headlines: (seeds, n_tasks), NaN if a task has no entry in the subset.
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
    """Return the percentile bootstrap interval of the mean of (n,) values; the value if n = 1.

    The seed is fixed, so equal values give equal intervals.  With few values, such as four seeds,
    the interval covers the mean with less than 95 % probability.
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
    """With `high`, Fieller's 95 % interval; NaN if a side has a single seed, or if the denominator
    is too uncertain to bound the quotient."""
    high: float
    paired: bool
    """True if both sides have the same seeds, so that the test is paired by seed."""


def ratio(over: Mapping[int, float], under: Mapping[int, float]) -> Ratio:
    """Return the mean of `over` divided by that of `under`; both are values by seed.

    Fieller's interval has the quotients r for which a t test of mean(over - r under) = 0 is not
    significant.  It excludes 1 exactly if the means differ significantly.  The test is paired if
    the seeds are the same, and otherwise Welch's, with the degrees of freedom at the estimated
    quotient.
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
    """Return the ends of {r: (mean x - r mean y)^2 <= t^2 (xx - 2 r xy + r^2 yy)}, or NaN."""
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
