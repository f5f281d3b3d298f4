"""The exact posterior of arm means under a prior that is uniform on [0, 1].

With Bernoulli rewards it is a Beta distribution.  With Gaussian rewards it is a normal distribution
around the average, with a standard deviation of sigma / sqrt(pulls), truncated to [0, 1].  Offline,
the arm with the highest posterior mean has the least expected suboptimality.  Online, Thompson
sampling plays the arm with the highest posterior draw.
"""

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

Numbers = NDArray[np.float64]

GRID = 256
"""Number of grid points for densities of means.  Their distance is a third of the smallest standard
deviation after 500 pulls."""


def posterior_means(counts: Numbers, sums: Numbers, sigma: float) -> Numbers:
    """Return posterior means, in the shape of the arguments.

    Args:
        counts: numbers of pulls of an arm.
        sums: sums of their rewards.
        sigma: standard deviation of Gaussian rewards; 0 means Bernoulli rewards.
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
    """Draw from the posterior; see `posterior_means`."""
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
    """Return averages mirrored at 1/2 if above it, which are mirrored, and standard deviations.

    Every interval then lies in the upper tail of its normal distribution, whose small probabilities
    are exact.  Arms without pulls count as pulled once.
    """
    pulls = np.maximum(counts, 1)
    averages = sums / pulls
    mirrored = averages > 0.5
    return np.where(mirrored, 1 - averages, averages), mirrored, sigma / np.sqrt(pulls)


def _density(z: Numbers) -> Numbers:
    """Return the density of the standard normal distribution."""
    return np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi)


def best_arm_probabilities(
    actions: NDArray[np.integer[Any]],
    rewards: NDArray[np.floating[Any]],
    n_arms: int,
    sigma: float,
    noise: float,
) -> NDArray[np.float64]:
    """Return the probability that an arm's score is the highest after each prefix, (n, T + 1, A).

    Args:
        actions: (n, T) pulls.
        rewards: (n, T), Gaussian.
        n_arms: A.
        sigma: standard deviation of rewards.
        noise: standard deviation of a score around its arm's mean.
    """
    n_tasks, horizon = actions.shape
    grid = np.linspace(-4 * noise, 1 + 4 * noise, GRID)
    counts, sums = np.zeros((n_tasks, n_arms)), np.zeros((n_tasks, n_arms))
    masses = np.empty((n_tasks, n_arms, GRID), np.float32)
    below = np.empty_like(masses)
    result = np.empty((n_tasks, horizon + 1, n_arms))
    every, tasks = np.indices((n_tasks, n_arms)), np.arange(n_tasks)
    for t in range(horizon + 1):
        changed = (every[0], every[1]) if t == 0 else (tasks, actions[:, t - 1])
        if t > 0:  # a pull changes one arm
            counts[changed] += 1
            sums[changed] += rewards[:, t - 1]
        known = counts[changed], sums[changed]
        masses[changed], below[changed] = _masses(*known, sigma, noise, grid)
        _highest(masses, below, result[:, t])
    return result / result.sum(axis=2, keepdims=True)


def best_arm_chances(counts: Numbers, sums: Numbers, sigma: float, noise: float) -> Numbers:
    """Return the probability that an arm's score is the highest, (n, A).

    Args:
        counts, sums: (n, A), numbers of pulls and sums of rewards.
        sigma, noise: see `best_arm_probabilities`.
    """
    grid = np.linspace(-4 * noise, 1 + 4 * noise, GRID)
    masses, below = _masses(counts, sums, sigma, noise, grid)
    chances = np.empty(counts.shape)
    _highest(masses.astype(np.float32), below.astype(np.float32), chances)
    return chances / chances.sum(axis=1, keepdims=True)


def _masses(
    counts: Numbers, sums: Numbers, sigma: float, noise: float, grid: Numbers
) -> tuple[Numbers, Numbers]:
    """Return the probabilities of scores on the grid, and of lower ones, both (..., GRID)."""
    density = score_density(counts, sums, sigma, noise, grid)
    share = density / density.sum(axis=-1, keepdims=True)
    # Half of a point's own mass is below it.
    return share, share.cumsum(axis=-1) - share / 2


def score_density(
    counts: Numbers, sums: Numbers, sigma: float, noise: float, grid: Numbers
) -> Numbers:
    """Return the unnormalized density (..., GRID) of arms' means plus normal noise."""
    pulled = counts[..., None] > 0
    pulls = np.maximum(counts, 1)[..., None]
    averages, variances = sums[..., None] / pulls, sigma**2 / pulls
    if noise == 0:
        inside = (grid >= 0) & (grid <= 1)
        exponent = -((grid - averages) ** 2) / (2 * variances)
        exponent = np.where(inside, exponent, -np.inf)
        known = np.exp(exponent - exponent.max(axis=-1, keepdims=True))
        return np.where(pulled, known, inside * 1.0)
    # Given a score, the mean is normal around a weighted mean of score and average.
    total = variances + noise**2
    middle = (grid * variances + averages * noise**2) / total
    width = np.sqrt(variances * noise**2 / total)
    exponent = -((grid - averages) ** 2) / (2 * total)
    within = ndtr((1 - middle) / width) - ndtr(-middle / width)
    known = np.exp(exponent - exponent.max(axis=-1, keepdims=True)) * within
    return np.where(pulled, known, ndtr(grid / noise) - ndtr((grid - 1) / noise))


@njit(cache=True, fastmath=True)
def _highest(masses, below, chances):  # type: ignore[no-untyped-def]
    """Fill (n, A): the probability that an arm's score is the highest, up to a factor."""
    arms, points = masses.shape[1:]
    for task in range(len(masses)):
        for arm in range(arms):
            product = masses[task, arm].copy()
            for other in range(arms):
                if other != arm:
                    for x in range(points):
                        product[x] *= below[task, other, x]
            chances[task, arm] = product.sum()
