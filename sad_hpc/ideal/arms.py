"""The exact posterior of arm means: uniform on [0, 1] a priori, after pulls of each arm.

Bernoulli rewards make it a Beta distribution.  Gaussian rewards make it a normal distribution
around the average, with a standard deviation of sigma / sqrt(pulls), truncated to [0, 1].  What is
ideal follows from it: offline, the arm of the highest posterior mean loses least on average;
online, Thompson sampling plays the arm of the highest draw.
"""

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

Numbers = NDArray[np.float64]


def posterior_means(counts: Numbers, sums: Numbers, sigma: float) -> Numbers:
    """Means of the posterior, in the shape of the arguments.

    Args:
        counts: pulls of an arm.
        sums: of their rewards.
        sigma: standard deviation of Gaussian rewards; 0 stands for Bernoulli rewards.
    """
    if sigma == 0:
        return (1 + sums) / (2 + counts)
    averages, mirrored, scale = _towards_zero(counts, sums, sigma)
    low, high = -averages / scale, (1 - averages) / scale
    shift = (_density(low) - _density(high)) / (ndtr(-low) - ndtr(-high))
    means = np.clip(averages + scale * shift, 0, 1)
    return np.where(counts > 0, np.where(mirrored, 1 - means, means), 0.5)


def posterior_draws(
    counts: Numbers, sums: Numbers, sigma: float, generator: np.random.Generator
) -> Numbers:
    """Draws from the posterior; see `posterior_means`."""
    if sigma == 0:
        return generator.beta(1 + sums, 1 + counts - sums)
    uniforms = generator.random(counts.shape)
    averages, mirrored, scale = _towards_zero(counts, sums, sigma)
    above_low, above_high = ndtr(averages / scale), ndtr((averages - 1) / scale)
    tails = above_high + uniforms * (above_low - above_high)
    draws = np.clip(averages - scale * ndtri(tails), 0, 1)
    return np.where(counts > 0, np.where(mirrored, 1 - draws, draws), uniforms)


def _towards_zero(
    counts: Numbers, sums: Numbers, sigma: float
) -> tuple[Numbers, NDArray[np.bool_], Numbers]:
    """Averages, which of them were mirrored at 1/2 to be at most that, and standard deviations.

    In this way every interval lies in the upper tail of its normal distribution, whose
    probabilities are exact however small they are.  Arms without pulls count as pulled once.
    """
    pulls = np.maximum(counts, 1)
    averages = sums / pulls
    mirrored = averages > 0.5
    return np.where(mirrored, 1 - averages, averages), mirrored, sigma / np.sqrt(pulls)


def _density(z: Numbers) -> Numbers:
    """Of the standard normal distribution."""
    return np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi)
