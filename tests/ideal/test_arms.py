import numpy as np
import pytest
from scipy.stats import kstest, truncnorm

from sad_hpc.ideal.arms import posterior_draws, posterior_means

CASES = [(1, 0.5), (1, -0.7), (1, 2.1), (4, 1.5), (9, 9.6), (500, 137.0), (300, -3.0)]
"""Pulls and sums of rewards."""


@pytest.mark.parametrize(("count", "total"), CASES)
def test_gaussian_posteriors_are_truncated_normal_distributions(count: int, total: float):
    mean, scale = total / count, 0.3 / np.sqrt(count)
    law = truncnorm(-mean / scale, (1 - mean) / scale, mean, scale)
    counts, sums = np.full(20_000, float(count)), np.full(20_000, total)
    assert posterior_means(counts[:1], sums[:1], 0.3) == pytest.approx(law.mean(), abs=1e-9)
    draws = posterior_draws(counts, sums, 0.3, np.random.default_rng(0))
    assert kstest(draws, law.cdf).pvalue > 1e-3


@pytest.mark.parametrize("sigma", [0.0, 0.3])
def test_before_any_pull_an_arm_is_uniform(sigma: float):
    nothing = np.zeros(20_000)
    draws = posterior_draws(nothing, nothing, sigma, np.random.default_rng(0))
    assert kstest(draws, "uniform").pvalue > 1e-3
    assert posterior_means(nothing[:1], nothing[:1], sigma) == 0.5


@pytest.mark.parametrize("sigma", [0.0, 0.3])
def test_posteriors_are_what_simulation_keeps(sigma: float):
    """Means drawn from the prior, of which those are kept that give about this average."""
    generator = np.random.default_rng(0)
    means = generator.random(400_000)
    if sigma:
        average = means + sigma / 2 * generator.standard_normal(means.shape)
        kept, total = means[abs(average - 0.9) < 0.01], 3.6
    else:
        kept, total = means[generator.binomial(4, means) == 3], 3.0
    counts, sums = np.full(50_000, 4.0), np.full(50_000, total)
    draws = posterior_draws(counts, sums, sigma, generator)
    error = 4 * kept.std() / np.sqrt(min(len(kept), 50_000))
    assert draws.mean() == pytest.approx(kept.mean(), abs=2 * error)
    assert draws.std() == pytest.approx(kept.std(), abs=2 * error)
    assert posterior_means(counts[:1], sums[:1], sigma) == pytest.approx(kept.mean(), abs=error)
