"""Means over the entries of a subset, and the numbers of a summary row over training seeds."""

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


def describe(headlines: NDArray[np.float64]) -> Statistics:
    """Statistics of per-task headline values.

    A seed's value is the mean over its tasks; mean, std and interval are over seeds.  The
    interquartile mean drops the lowest and highest quarter of all (seed, task) values.

    Args:
        headlines: (seeds, n_tasks), NaN where a task has no entry in the subset.
    """
    belongs = ~np.isnan(headlines)
    per_seed = masked_mean(headlines, belongs, axis=1)
    per_seed = per_seed[~np.isnan(per_seed)]
    n = len(per_seed)
    if n == 0:
        return Statistics(0, *[float("nan")] * 5)
    low, high = bootstrap_interval(per_seed)
    return Statistics(
        n_seeds=n,
        mean=float(per_seed.mean()),
        std=float(per_seed.std(ddof=1)) if n > 1 else 0.0,
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
