"""The exact posterior of linear bandits, and the upper bounds of LinUCB.

With theta ~ N(0, I / precision) and rewards ~ N(<theta, phi(arm)>, sigma), theta given the pulls is
normal.  Pulls and sums of rewards by arm are sufficient.
"""

import numpy as np

from sad_hpc.ideal.arms import Numbers


def posterior(
    features: Numbers, counts: Numbers, sums: Numbers, sigma: float, precision: float
) -> tuple[Numbers, Numbers]:
    """Return the mean (..., d) and covariance (..., d, d) of theta given the pulls.

    Args:
        features: phi, (A, d).
        counts, sums: numbers of pulls and sums of rewards, (..., A).
        sigma: standard deviation of rewards.
        precision: inverse variance of each component of theta before the pulls.
    """
    prior = precision * np.eye(features.shape[1])
    known = np.einsum("...a,ai,aj->...ij", counts, features, features) / sigma**2
    covariance = np.linalg.inv(prior + known)
    mean = np.einsum("...ij,...j->...i", covariance, sums @ features) / sigma**2
    return mean, covariance


def posterior_means(features: Numbers, counts: Numbers, sums: Numbers, sigma: float) -> Numbers:
    """Return posterior means of arms, (..., A), if theta ~ N(0, I / d); see `posterior`."""
    mean, _ = posterior(features, counts, sums, sigma, features.shape[1])
    return mean @ features.T


def posterior_draws(
    features: Numbers,
    counts: Numbers,
    sums: Numbers,
    sigma: float,
    generator: np.random.Generator,
) -> Numbers:
    """Draw the means of arms, (..., A), from the posterior; see `posterior_means`."""
    mean, covariance = posterior(features, counts, sums, sigma, features.shape[1])
    normal = generator.standard_normal(mean.shape)
    theta = mean + np.einsum("...ij,...j->...i", np.linalg.cholesky(covariance), normal)
    return theta @ features.T


def upper_bounds(features: Numbers, counts: Numbers, sums: Numbers) -> Numbers:
    """Return LinUCB's bounds (..., A): ridge regression plus one width, as in DPT's public code.

    A ridge of 1 without a noise level is the posterior with sigma = 1 and precision 1.
    """
    mean, covariance = posterior(features, counts, sums, 1.0, 1.0)
    variances = np.einsum("ai,...ij,aj->...a", features, covariance, features)
    return mean @ features.T + np.sqrt(variances)
