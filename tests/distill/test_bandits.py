import numpy as np
import pytest
from scipy import integrate, stats

from sad_hpc.distill import make_block
from sad_hpc.distill.bandits import (
    SHAPES,
    DrawPolicies,
    distill_bandit_labels,
    draw_policies,
    draw_policies_of_dpt,
    pay,
    pull_arms,
    pull_by_drawn_policies,
)
from sad_hpc.errors import ConfigError
from sad_hpc.experiment.behavior_policy import policy_table
from sad_hpc.experiment.load import load_experiment
from sad_hpc.experiment.sections import DataConfig
from sad_hpc.kernels.random import stream
from sad_hpc.tasks.bandit import BernoulliBanditConfig, GaussianBanditConfig
from sad_hpc.tasks.base import make_family
from tests.conftest import ROOT
from tests.distill.laws import algorithm_2_law, counts_at_the_end

UNIFORM = policy_table("uniform", 2)


def label(means, sigma: float, pulls: int, n_tasks: int = 40_000, policy=UNIFORM, ties=False):
    tasks = np.tile(np.array(means, np.float32), (n_tasks, 1))
    return distill_bandit_labels(tasks, sigma, policy, pulls, ties, stream(0, 0, 0, "sad"))


def test_algorithm_2_stops_when_every_arm_has_n_pulls():
    expected = sum((a + b) * p for (a, b), p in counts_at_the_end(5).items())
    labels, pulls = label([0.5, 0.5], 0.3, 5)
    assert pulls / len(labels) == pytest.approx(expected, rel=0.01)


def test_algorithm_2_has_the_exact_law_of_labels_for_gaussian_rewards():
    expected = sum(
        p * stats.norm.cdf((0.6 - 0.5) / (0.3 * np.sqrt(1 / a + 1 / b)))
        for (a, b), p in counts_at_the_end(3).items()
    )
    labels, _ = label([0.6, 0.5], 0.3, 3)
    assert stats.binomtest(int((labels == 0).sum()), len(labels), expected).pvalue > 1e-3


@pytest.mark.parametrize("ties", [False, True])
def test_algorithm_2_has_the_exact_law_of_labels_for_bernoulli_rewards(ties: bool):
    [expected] = algorithm_2_law(np.array([[0.7, 0.4]]), 2, ties)
    labels, _ = label([0.7, 0.4], 0.0, 2, ties=ties)
    assert stats.binomtest(int((labels == 0).sum()), len(labels), expected).pvalue > 1e-3


def test_arms_are_pulled_by_the_policy():
    table = policy_table([0.5, 0.25, 0.25], 3)
    counts = np.bincount(pull_arms(table, 100_000, stream(0, 0, 0, "transitions")))
    assert stats.chisquare(counts, 100_000 * np.array([0.5, 0.25, 0.25])).pvalue > 1e-3


@pytest.mark.parametrize("config", [GaussianBanditConfig, BernoulliBanditConfig])
def test_contexts_are_paid_as_the_environment_pays(config):
    family = make_family(config(horizon=50))
    means = family.draw_means(300, np.random.default_rng(1))
    arms = pull_arms(policy_table("uniform", 5), 300 * 50, stream(0, 0, 0, "transitions"))
    arms = arms.reshape(300, 50)
    pulled = np.take_along_axis(means, arms.astype(int), axis=1)
    expected = family.draw_rewards(pulled, np.random.default_rng(2))
    assert (pay(means, family.sigma, arms, np.random.default_rng(2)) == expected).all()


@pytest.mark.parametrize("config", [GaussianBanditConfig, BernoulliBanditConfig])
def test_a_block_has_no_faults_and_the_right_labels(config):
    family = make_family(config(horizon=50))
    data = DataConfig(tasks=2000, trust_horizon=40, block_tasks=1000)
    block = make_block(family, data, "train", 1)
    arrays = block.arrays
    assert arrays["transitions/rewards"].shape == (600, 50)
    assert (arrays["tasks/index"] == np.arange(1000, 1600)).all()
    context = {name: arrays[f"transitions/{name}"] for name in ("states", "actions", "rewards")}
    assert family.dynamics_faults(arrays["tasks/parameters"], "transitions", context) == []
    wrong = context | {"rewards": np.roll(context["rewards"], 1, axis=0) + 0.5}
    assert family.dynamics_faults(arrays["tasks/parameters"], "transitions", wrong)
    accuracy = {
        name: family.are_optimal(
            arrays["tasks/parameters"],
            arrays[f"labels/{name}/query_states"],
            arrays[f"labels/{name}/actions"],
        ).mean()
        for name in ("sad", "dpt", "dpt_star")
    }
    assert accuracy["dpt_star"] == 1
    assert accuracy["sad"] > 0.75 > 0.3 > accuracy["dpt"]


def test_ties_in_a_block_are_broken_as_the_config_says():
    """With one pull of each arm ties of arms that paid 1 are the rule."""
    family = make_family(BernoulliBanditConfig(horizon=5))
    shares = {}
    for tie_break in ("lowest", "random"):
        data = DataConfig(tasks=20_000, trust_horizon=1, block_tasks=16_000, tie_break=tie_break)
        labels = make_block(family, data, "train", 0).arrays["labels/sad/actions"][:, 0]
        shares[tie_break] = np.bincount(labels, minlength=5) / len(labels)
    assert shares["lowest"][0] > 0.3 > 0.1 > shares["lowest"][4]
    assert shares["random"] == pytest.approx(np.full(5, 0.2), abs=0.02)


def test_train_and_test_tasks_differ():
    family = make_family(GaussianBanditConfig(horizon=5))
    data = DataConfig(tasks=100, trust_horizon=2)
    train, test = (
        make_block(family, data, split, 0).arrays["tasks/parameters"] for split in ("train", "test")
    )
    assert not (train[:20] == test).any()


def test_a_policy_that_never_pulls_an_arm_is_refused():
    overrides = ["task.arms=2", "data.behavior_policy=[1.0, 0.0]"]
    with pytest.raises(ConfigError, match="never pulls"):
        load_experiment(ROOT / "tests/configs/tiny_gaussian.yaml", overrides)


def test_drawn_policies_have_the_moments_of_their_law():
    """E[p_i] = 1 / A, and E[p_i^2] by the Dirichlet's and the mixture's moments."""
    policies = draw_policies(100_000, 5, np.random.default_rng(0))
    assert policies.sum(axis=1) == pytest.approx(1) and policies.min() >= 0
    assert policies.mean(axis=0) == pytest.approx(np.full(5, 0.2), abs=0.004)
    low, high = np.log(SHAPES)

    def second(log_shape: float) -> float:  # of a symmetric Dirichlet's component
        shape = np.exp(log_shape)
        return (shape + 1) / (5 * (5 * shape + 1)) / (high - low)

    dirichlet, _ = integrate.quad(second, low, high)
    one, two = 2 / 3, 8 / 15  # E[1 - u^2], E[(1 - u^2)^2]
    expected = two * dirichlet + 2 * (one - two) / 25 + (1 - 2 * one + two) / 25
    assert (policies**2).mean() == pytest.approx(expected, rel=0.01)


@pytest.mark.parametrize("draw", [draw_policies, draw_policies_of_dpt])
def test_arms_are_pulled_by_the_policy_that_was_drawn(draw: DrawPolicies):
    family = make_family(GaussianBanditConfig(horizon=4000))
    arms = pull_by_drawn_policies(20, family, draw, stream(0, 0, 0, "policies"))
    policies = draw(20, 5, np.random.default_rng(stream(0, 0, 0, "policies")))
    for pulls, policy in zip(arms, policies, strict=True):
        counts, likely = np.bincount(pulls, minlength=5), policy > 1e-3
        assert np.abs(counts / 4000 - policy).max() < 0.04
        shares = policy[likely] / policy[likely].sum()
        assert (
            likely.sum() == 1
            or stats.chisquare(counts[likely], counts[likely].sum() * shares).pvalue > 1e-5
        )


def test_policies_of_dpt_are_mixtures_with_one_arm():
    """First and second moments of (1 - c) p + c e; those of Dirichlet's p are 1/5 and 2/30."""
    policies = draw_policies_of_dpt(40_000, 5, np.random.default_rng(0))
    assert np.allclose(policies.sum(axis=1), 1) and policies.min() >= 0
    squared, mixed = 0.35, 0.15  # E[c^2] = E[(1 - c)^2], and E[c (1 - c)]
    second = squared * 2 / 30 + 2 * mixed / 25 + squared / 5
    error = policies.std(axis=0) / np.sqrt(len(policies))
    assert (np.abs(policies.mean(axis=0) - 0.2) < 5 * error).all()
    squares = policies**2
    error = squares.std(axis=0) / np.sqrt(len(policies))
    assert (np.abs(squares.mean(axis=0) - second) < 5 * error).all()
    sure = (policies == 1).any(axis=1).mean()
    assert abs(sure - 1 / 11) < 5 * np.sqrt(1 / 11 / len(policies))


@pytest.mark.parametrize("policy, splits", [("drawn", ["train"]), ("dpt", ["train", "test"])])
def test_own_policies_change_contexts_of_their_splits_and_nothing_else(policy: str, splits):
    family = make_family(GaussianBanditConfig(horizon=30))
    data = DataConfig(tasks=60, trust_horizon=2)
    own = data.model_copy(update={"context_policy": policy})
    for split in ("train", "test"):
        plain, other = (make_block(family, each, split, 0).arrays for each in (data, own))
        changed = {name for name in plain if not (plain[name] == other[name]).all()}
        assert changed == (
            {"transitions/actions", "transitions/rewards"} if split in splits else set()
        )


def test_settings_of_other_families_are_refused():
    with pytest.raises(ConfigError, match=r"data\.context_policy=drawn is for bandits"):
        load_experiment(ROOT / "configs/darkroom.yaml", ["data.context_policy=drawn"])
    with pytest.raises(ConfigError, match=r"data\.oracle_error=0\.2 is for rooms"):
        load_experiment(ROOT / "configs/gaussian_bandit.yaml", ["data.oracle_error=0.2"])
    with pytest.raises(ConfigError, match=r"data\.continuation=0\.5 is for sparse rewards"):
        load_experiment(ROOT / "configs/gaussian_bandit.yaml", ["data.continuation=0.5"])
    for config in ("gaussian_bandit", "miniworld"):
        with pytest.raises(
            ConfigError, match=r"data\.common_actions is for label rollouts in tables"
        ):
            load_experiment(ROOT / f"configs/{config}.yaml", ["data.common_actions=true"])
