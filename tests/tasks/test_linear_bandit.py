import numpy as np
import pytest
from scipy import stats

from sad_hpc.distill import make_block
from sad_hpc.errors import UserError
from sad_hpc.experiment.sections import DataConfig
from sad_hpc.tasks.base import make_family
from sad_hpc.tasks.linear_bandit import LinearBandit, LinearBanditConfig
from tests.distill.laws import counts_at_the_end


def family(**settings) -> LinearBandit:
    made = make_family(LinearBanditConfig(**settings))
    assert isinstance(made, LinearBandit)
    return made


def test_means_have_the_covariance_of_the_features():
    """theta ~ N(0, I / d) gives means ~ N(0, F F^T / d): two numbers decide ten means."""
    bandits = family()
    means = bandits.draw_means(200_000, np.random.default_rng(0))
    assert means.shape == (200_000, 10) and bandits.features.shape == (10, 2)
    expected = bandits.features @ bandits.features.T / 2
    assert np.cov(means.T) == pytest.approx(expected, abs=0.01 * np.trace(expected))
    assert np.linalg.matrix_rank(means.astype(float), tol=0.01) == 2


def test_all_tasks_share_the_features_of_their_seed():
    assert (family().features == family().features).all()
    assert (family().features != family(feature_seed=0).features).all()
    many = family(arms=255, dimension=64).features
    assert stats.kstest(8 * many.ravel(), "norm").pvalue > 1e-3


def test_only_means_that_are_linear_in_the_features_are_stored():
    bandits = family()
    means = bandits.draw_means(5, np.random.default_rng(0)).astype(float)
    assert (bandits.stored_tasks(means) == means.astype(np.float32)).all()
    means[3, 0] += 0.01
    with pytest.raises(UserError, match="not of a training task of linear_bandit"):
        bandits.stored_tasks(means)
    with pytest.raises(UserError, match="not of a training task"):
        bandits.stored_tasks(means[:, :9])


def test_sads_labels_are_the_best_arm_as_often_as_the_law_says():
    """Two arms differ by N(0, s^2), and their averages by N(0, c^2) more.  The better arm has the
    better average with probability 1/2 + arctan(s / c) / pi."""
    bandits = family(arms=2, horizon=5)
    data = DataConfig(tasks=50_000, block_tasks=50_000, trust_horizon=2)
    block = make_block(bandits, data, "train", 0)
    labels = block.arrays["labels/sad/actions"]
    means = block.arrays["tasks/parameters"]
    right = bandits.are_optimal(means, block.arrays["labels/sad/query_states"], labels)
    spread = np.linalg.norm(bandits.features[0] - bandits.features[1]) / np.sqrt(2)
    expected = sum(
        share * (0.5 + np.arctan(spread / (0.3 * np.sqrt(1 / a + 1 / b))) / np.pi)
        for (a, b), share in counts_at_the_end(2).items()
    )
    assert stats.binomtest(int(right.sum()), right.size, expected).pvalue > 1e-3
    assert block.arrays["transitions/rewards"].min() < 0
    context = {
        name: block.arrays[f"transitions/{name}"] for name in ("states", "actions", "rewards")
    }
    assert not bandits.dynamics_faults(means, "transitions", context)
