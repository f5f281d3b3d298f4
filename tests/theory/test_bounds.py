import itertools
import math

import numpy as np
import pytest

from sad_hpc.distill.bandits import distill_bandit_labels
from sad_hpc.distill.labels import LabelRule
from sad_hpc.distill.rollout_labels import distill_labels
from sad_hpc.errors import ConfigError
from sad_hpc.experiment.behavior_policy import policy_table
from sad_hpc.kernels.random import stream
from sad_hpc.tasks.mdps import TabularMDPs
from sad_hpc.theory.bounds import BanditBound, MDPBound, log_term


@pytest.mark.parametrize("delta", [1e-6, 0.01, 0.3, 0.9])
def test_a_trust_horizon_buys_the_trustworthiness_that_it_is_for(delta: float):
    bandit = BanditBound(bound=1.5, gap=0.2)
    assert bandit.trustworthiness(bandit.trust_horizon(delta)) == pytest.approx(1 - delta)
    mdp = MDPBound(bound=1.0, kappa=0.05, discount=0.9)
    horizon = mdp.least_horizon + 5
    assert mdp.trustworthiness(mdp.episodes(delta, horizon), horizon) == pytest.approx(1 - delta)


def test_the_horizon_is_the_least_for_which_hoeffdings_inequality_gives_the_level():
    """The proof's last step, solved by bisection instead of by its formula."""
    bound, gap, delta = 1.0, 0.1, 0.05
    low, high = 1.0, 1e6
    for _ in range(200):
        middle = (low + high) / 2
        one_mean_is_off = math.exp(-middle * (gap / 2) ** 2 / (2 * bound**2))
        if (1 - one_mean_is_off) ** 2 >= 1 - delta:
            high = middle
        else:
            low = middle
    assert BanditBound(bound, gap).trust_horizon(delta) == pytest.approx(high)


def test_what_comes_after_the_least_horizon_cannot_turn_the_gap_around():
    for kappa in (0.3, 0.01, 1e-4):
        mdp = MDPBound(bound=2.0, kappa=kappa, discount=0.95)
        n = mdp.least_horizon
        tails = [2 * 2.0 * 0.95 ** (N + 1) / (1 - 0.95) for N in (n - 1, n)]
        assert tails[1] < kappa <= tails[0]
        with pytest.raises(ConfigError, match=f"N={n - 1} is below {n}"):
            mdp.g_1(n - 1)


def test_g_1_falls_with_the_horizon_to_its_limit():
    mdp = MDPBound(bound=1.0, kappa=0.05, discount=0.9)
    values = [mdp.g_1(mdp.least_horizon + k) for k in range(300)]
    assert all(a > b for a, b in itertools.pairwise(values[:60]))  # Lemma 2
    assert values[-1] == pytest.approx(8 * 1.0 / (0.05 * 0.1) ** 2)


@pytest.mark.parametrize("pulls", [265, 400])
def test_theorem_1_holds_in_simulation(pulls: int):
    """Two arms, for which its proof is complete; rewards are 0 or 1, so B = 1: 0.9 and 0.98."""
    means = np.tile(np.array([0.7, 0.4], np.float32), (4000, 1))
    table = policy_table("uniform", 2)
    labels, _ = distill_bandit_labels(means, 0.0, table, pulls, False, stream(0, 0, 0, "sad"))
    assert (labels == 0).mean() >= BanditBound(1.0, 0.3).trustworthiness(pulls)


def test_theorem_2_holds_in_simulation():
    """Two states that stay as they are; in each another action is worth 1, the rest nothing."""
    mdps = TabularMDPs(
        np.array([[[0, 0], [1, 1]]], np.uint16), np.array([[[1, 0], [0, 1]]], np.float32)
    )
    mdp = MDPBound(bound=1.0, kappa=1.0, discount=0.5)
    horizon = mdp.least_horizon + 3
    rule = LabelRule(
        trust_horizon=horizon + 1,
        episodes_per_action=math.ceil(mdp.episodes(0.1, horizon)),
        discount=0.5,
        stop_at_reward=False,
        return_threshold=-1.0,
        random_ties=False,
    )
    table, tasks = policy_table("uniform", 2), np.zeros(2000, np.int64)
    labels = distill_labels(mdps, tasks, table, rule, stream(0, 0, 0, "sad"))
    assert (labels.actions == labels.query_states).mean() >= 0.9


def test_horizons_at_a_power_of_gamma_are_above_it_nevertheless():
    """Rounding must not move the least N, and G_1 must not divide by 0."""
    for power in range(1, 40):
        for gamma in (0.5, 0.9, 0.95):
            mdp = MDPBound(bound=1.0, kappa=2 * gamma**power / (1 - gamma), discount=gamma)
            assert mdp.least_horizon == power
            expected = 2 * ((1 - gamma ** (power + 1)) / (gamma**power * (1 - gamma))) ** 2
            assert mdp.g_1(power) == pytest.approx(expected)


@pytest.mark.parametrize("delta", [0.0, 1.0, -0.1, 2.0, math.nan])
def test_impossible_deltas_are_refused(delta: float):
    with pytest.raises(ConfigError, match="delta"):
        log_term(delta)


@pytest.mark.parametrize("value", [0.0, -1.0, math.inf, math.nan])
def test_impossible_problems_are_refused(value: float):
    with pytest.raises(ConfigError, match="gap"):
        BanditBound(1.0, value)
    with pytest.raises(ConfigError, match="kappa"):
        MDPBound(1.0, value, 0.9)
    with pytest.raises(ConfigError, match="bound"):
        BanditBound(value, 0.1)


def test_problems_beyond_floating_point_are_refused():
    with pytest.raises(ConfigError, match="N for gap=1e-200 is too large"):
        BanditBound(1.0, 1e-200).trust_horizon(0.1)
    with pytest.raises(ConfigError, match="G_1 for kappa=1e-200 is too large"):
        MDPBound(1.0, 1e-200, 0.9).g_1(5000)
    with pytest.raises(ConfigError, match="is too small to compute"):
        MDPBound(1.0, 5e-324, 0.9)


def test_gaps_wider_than_the_rewards_allow_are_refused():
    with pytest.raises(ConfigError, match="kappa=100 is impossible"):
        MDPBound(1.0, 100.0, 0.9)


@pytest.mark.parametrize("gamma", [0.0, 1.0, 1.5, -0.5])
def test_impossible_discounts_are_refused(gamma: float):
    with pytest.raises(ConfigError, match="gamma"):
        MDPBound(1.0, 0.1, gamma)
