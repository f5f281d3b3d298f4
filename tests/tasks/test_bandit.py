import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from scipy import stats

from sad_hpc.errors import ConfigError
from sad_hpc.experiment.load import parse_experiment
from sad_hpc.tasks.bandit import BanditFamily, BernoulliBanditConfig, GaussianBanditConfig
from sad_hpc.tasks.base import make_family


def family(kind: str) -> BanditFamily:
    made = make_family(
        {"gaussian": GaussianBanditConfig, "bernoulli": BernoulliBanditConfig}[kind]()
    )
    assert isinstance(made, BanditFamily)
    return made


@pytest.mark.parametrize("kind", ["Gaussian", "Bernoulli"])
def test_environment_passes_gymnasiums_checker(kind: str):
    check_env(gymnasium.make(f"sad_hpc/{kind}Bandit-v0").unwrapped)


@pytest.mark.parametrize("kind", ["gaussian", "bernoulli"])
def test_means_are_uniform(kind: str):
    means = family(kind).draw_means(20_000, np.random.default_rng(0))
    assert means.shape == (20_000, 5)
    assert stats.kstest(means.ravel(), "uniform").pvalue > 1e-3


def test_gaussian_rewards_are_normal_around_their_means():
    means = np.full(100_000, 0.7, np.float32)
    rewards = family("gaussian").draw_rewards(means, np.random.default_rng(0))
    assert rewards.dtype == np.float32
    assert stats.kstest(rewards, "norm", args=(0.7, 0.3)).pvalue > 1e-3


def test_bernoulli_rewards_are_0_or_1_with_the_chance_of_the_mean():
    means = np.full(100_000, 0.7, np.float32)
    rewards = family("bernoulli").draw_rewards(means, np.random.default_rng(0))
    assert set(rewards) == {0, 1}
    assert stats.binomtest(int(rewards.sum()), 100_000, 0.7).pvalue > 1e-3


def test_the_environment_pays_like_the_family():
    env = gymnasium.make("sad_hpc/GaussianBandit-v0", means=(0.2, 0.9), horizon=4000).unwrapped
    env.reset(seed=0)
    for arm, mean in enumerate((0.2, 0.9)):
        rewards = [env.step(arm)[1] for _ in range(2000)]
        assert stats.kstest(rewards, "norm", args=(mean, 0.3)).pvalue > 1e-3
    assert env.step(0)[3]


def test_optimal_arms_are_those_of_the_largest_mean():
    means = np.array([[0.1, 0.9, 0.3], [0.5, 0.2, 0.5]])
    arms = np.array([[0, 1, 2], [0, 1, 2]], np.uint8)
    found = family("gaussian").are_optimal(means, np.zeros((2, 3, 1)), arms)
    assert found.tolist() == [[False, True, False], [True, False, True]]


def test_fewer_than_two_arms_are_refused():
    mapping = {
        "name": "x",
        "task": {"family": "gaussian_bandit", "arms": 1},
        "data": {"tasks": 5000, "trust_horizon": 5},
        "rows": ["SAD"],
        "pretrain": {"epochs": 1},
    }
    with pytest.raises(ConfigError, match=r"task\.arms.*2"):
        parse_experiment(mapping, "x.yaml")
