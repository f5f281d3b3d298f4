import numpy as np
import pytest

from sad_hpc.ideal.linear_arms import posterior_draws, posterior_means, upper_bounds
from sad_hpc.tasks.linear_bandit import LinearBandit, LinearBanditConfig

BANDIT = LinearBandit(LinearBanditConfig())
ARMS, REWARDS = np.array([0, 3, 3, 7]), np.array([0.9, -0.2, 0.3, 1.1])
COUNTS = np.bincount(ARMS, minlength=10).astype(float)
SUMS = np.bincount(ARMS, REWARDS, minlength=10)


def weighted_tasks() -> tuple[np.ndarray, np.ndarray]:
    """Means (n, A) of the prior, and their weights (n,) by the likelihood of the rewards."""
    means = BANDIT.draw_means(1_000_000, np.random.default_rng(0)).astype(float)
    weights = np.exp(-(((REWARDS - means[:, ARMS]) / BANDIT.sigma) ** 2).sum(axis=1) / 2)
    return means, weights / weights.sum()


def test_the_posterior_is_the_prior_weighted_by_the_likelihood():
    means, weights = weighted_tasks()
    expected = weights @ means
    found = posterior_means(BANDIT.features, COUNTS, SUMS, BANDIT.sigma)
    assert found == pytest.approx(expected, abs=0.005)
    shape = (200_000, 10)
    counts, sums = np.broadcast_to(COUNTS, shape), np.broadcast_to(SUMS, shape)
    generator = np.random.default_rng(1)
    draws = posterior_draws(BANDIT.features, counts, sums, BANDIT.sigma, generator)
    centered = means - expected
    covariance = (weights[:, None] * centered).T @ centered
    assert draws.mean(axis=0) == pytest.approx(expected, abs=0.005)
    assert np.cov(draws.T) == pytest.approx(covariance, abs=0.005)
    # Thompson sampling pulls an arm with the probability that it is the best.
    best = np.bincount(means.argmax(axis=1), weights, 10)
    pulled = np.bincount(draws.argmax(axis=1), minlength=10) / len(draws)
    assert pulled == pytest.approx(best, abs=0.01)


def test_before_any_pull_the_posterior_is_the_prior():
    nothing = np.zeros((100_000, 10))
    draws = posterior_draws(BANDIT.features, nothing, nothing, 0.3, np.random.default_rng(0))
    expected = BANDIT.features @ BANDIT.features.T / 2
    assert np.cov(draws.T) == pytest.approx(expected, abs=0.02)
    assert not posterior_means(BANDIT.features, nothing, nothing, 0.3).any()


def test_linucb_is_ridge_regression_plus_its_width():
    pulled = BANDIT.features[ARMS]
    gram = np.eye(2) + pulled.T @ pulled
    theta = np.linalg.solve(gram, pulled.T @ REWARDS)
    widths = [np.sqrt(phi @ np.linalg.solve(gram, phi)) for phi in BANDIT.features]
    expected = BANDIT.features @ theta + widths
    assert upper_bounds(BANDIT.features, COUNTS, SUMS) == pytest.approx(expected)
