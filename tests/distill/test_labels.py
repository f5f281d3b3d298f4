import itertools
from functools import partial

import numpy as np
import pytest
from scipy import stats

from sad_hpc.distill import make_block, tabular
from sad_hpc.distill.labels import LabelRule, optimal_labels
from sad_hpc.distill.rollout_labels import distill_labels
from sad_hpc.errors import UserError
from sad_hpc.experiment.behavior_policy import policy_table
from sad_hpc.experiment.sections import DataConfig
from sad_hpc.ideal import common_law
from sad_hpc.ideal.common_law import common_actions_chances
from sad_hpc.ideal.label_law import (
    algorithm_5_law,
    best_of,
    hitting_step_law,
    label_chances,
    label_law,
)
from sad_hpc.kernels.random import stream
from sad_hpc.tasks.base import make_family
from sad_hpc.tasks.darkroom import DarkroomConfig
from sad_hpc.tasks.mdps import TabularMDPs
from tests.distill.laws import assert_law
from tests.distill.rules import make_rule

FAMILY = make_family(DarkroomConfig(size=4, train_goals=10))
GOAL = FAMILY.parameters("train", 0, 1)
MDP = FAMILY.mdps(GOAL)
UNIFORM = np.full(5, 0.2)
N_TASKS = 60_000


rule = partial(make_rule, trust_horizon=4)


def test_a_rule_says_what_the_config_says():
    told = {
        "trust_horizon": 9,
        "episodes_per_action": 3,
        "discount": 0.7,
        "return_threshold": 0.2,
        "candidates": 7,
        "continuation": 0.4,
    }
    data = DataConfig(tasks=2, **told, tie_break="random", score="fastest")
    expected = LabelRule(**told, stop_at_reward=True, random_ties=True, best_episode=True)
    assert LabelRule.of(data, sparse_reward=True) == expected
    plain = LabelRule.of(DataConfig(tasks=2, **told), sparse_reward=False)
    assert plain == LabelRule(**told, stop_at_reward=False, random_ties=False, best_episode=False)


def sample(chosen: LabelRule, mdp: TabularMDPs = MDP, n_tasks: int = N_TASKS, policy=None):
    table = policy_table("uniform" if policy is None else list(policy), mdp.rewards.shape[2])
    return distill_labels(mdp, np.zeros(n_tasks, np.int64), table, chosen, stream(0, 0, 0, "sad"))


@pytest.mark.parametrize("random_ties", [False, True])
@pytest.mark.parametrize("policy", [UNIFORM, np.array([0.4, 0.1, 0.3, 0.1, 0.1])])
def test_algorithm_5_has_the_exact_law_of_query_states_and_labels(random_ties, policy):
    labels = sample(rule(random_ties=random_ties), policy=policy)
    assert_law(labels, algorithm_5_law(MDP, policy, 4, random_ties))


@pytest.mark.parametrize(("episodes", "best_episode"), [(1, False), (3, True)])
def test_drawn_trust_horizons_have_the_exact_law_of_query_states_and_labels(
    episodes: int, best_episode: bool
):
    chosen = rule(continuation=0.6, episodes_per_action=episodes, best_episode=best_episode)
    law = algorithm_5_law(MDP, UNIFORM, 4, False, episodes, continuation=0.6)
    assert_law(sample(chosen), law)
    # The mixture of the laws of all trust horizons, weighted by their chances and acceptances.
    chances = [0.4, 0.4 * 0.6, 0.4 * 0.6**2, 0.6**3]
    laws = [
        best_of(hitting_step_law(MDP.outcomes.at(0), UNIFORM, n + 1), episodes) for n in range(4)
    ]
    mixed = sum(c * label_chances(one, False) for c, one in zip(chances, laws, strict=True))
    assert np.allclose(law, mixed / mixed.sum())
    far = np.abs(FAMILY.coordinates - GOAL[0]).sum(axis=1) > 2
    fixed = algorithm_5_law(MDP, UNIFORM, 4, False, episodes)
    assert law[far].sum() < 0.8 * fixed[far].sum()


@pytest.mark.parametrize("random_ties", [False, True])
@pytest.mark.parametrize("policy", [UNIFORM, np.array([0.4, 0.1, 0.3, 0.1, 0.1])])
def test_common_actions_have_the_exact_law_of_query_states_and_labels(random_ties, policy):
    chances = common_actions_chances(MDP, policy, 4, random_ties)[0]
    law = chances / chances.sum()
    labels = sample(rule(random_ties=random_ties, common_actions=True), policy=policy)
    assert_law(labels, law)
    independent = algorithm_5_law(MDP, policy, 4, random_ties)
    optimal = FAMILY.optimal_actions(GOAL)[0]
    assert (law * optimal).sum() > (independent * optimal).sum() + 0.05


def test_rooms_with_inner_walls_have_too_many_joint_places(monkeypatch: pytest.MonkeyPatch):
    assert common_actions_chances(MDP, UNIFORM, 4, False) is not None
    monkeypatch.setattr(common_law, "MAX_PLACES", 20)
    assert common_actions_chances(MDP, UNIFORM, 4, False) is None
    data = DataConfig(tasks=100, trust_horizon=4, common_actions=True)
    assert label_law(FAMILY, data, "labels/sad") is None
    monkeypatch.undo()
    assert label_law(FAMILY, data, "labels/sad") is not None
    drawn = data.model_copy(update={"continuation": 0.5})
    assert label_law(FAMILY, drawn, "labels/sad") is None


@pytest.mark.parametrize("best_episode", [False, True])
def test_common_actions_of_several_rollouts_have_the_enumerated_law(best_episode: bool):
    """Two rollouts of three steps: the i-th of every action has the same two later actions."""
    first, paid, joint = MDP.next_states[0], MDP.rewards[0], np.zeros((16, 5))
    for later in itertools.product(itertools.product(range(5), repeat=2), repeat=2):
        found = []
        for one, two in later:
            rewards = np.stack([paid, paid[first, one], paid[MDP.next_states[0][first, one], two]])
            seen = rewards.cumsum(axis=0) - rewards
            found.append((rewards * (seen == 0) * (0.9 ** np.arange(3))[:, None, None]).sum(axis=0))
        scores = np.max(found, axis=0) if best_episode else np.mean(found, axis=0)
        accepted = scores.max(axis=1) > 0
        joint[accepted, scores.argmax(axis=1)[accepted]] += 1
    several = {"episodes_per_action": 2, "common_actions": True, "best_episode": best_episode}
    assert_law(sample(rule(trust_horizon=3, **several)), joint / joint.sum())


def test_algorithm_5_spends_the_expected_number_of_transitions():
    law = hitting_step_law(MDP.outcomes.at(0), UNIFORM, 4)
    steps_of_a_rollout = (law * [1, 2, 3, 4, 4]).sum(axis=-1).sum(axis=-1)  # (S,), all actions
    accepted = 1 - law[:, :, -1].prod(axis=-1)
    expected = steps_of_a_rollout.mean() / accepted.mean()
    labels = sample(rule())
    assert labels.transitions / N_TASKS == pytest.approx(expected, rel=0.01)


def test_a_policy_of_one_action_needs_no_draws():
    labels = sample(rule(), n_tasks=200, policy=np.array([0.0, 1.0, 0.0, 0.0, 0.0]))
    assert MDP.rewards[0, labels.query_states, labels.actions].max() == 1


def test_the_tables_of_a_block_alone_give_the_same_laws(monkeypatch):
    """A split's tables are made block by block if together they need too much memory."""
    monkeypatch.setattr(tabular, "TABLE_ENTRIES", 0)
    data = DataConfig(tasks=6000, trust_horizon=4, block_tasks=4000)
    arrays = make_block(FAMILY, data, "train", 0).arrays
    goals = arrays["tasks/parameters"]
    assert (goals == FAMILY.parameters("train", 0, len(goals))).all()
    context = {
        n: arrays[f"transitions/{n}"] for n in ("states", "actions", "rewards", "next_states")
    }
    assert FAMILY.dynamics_faults(goals, "transitions", context) == []
    queries, labels = arrays["labels/sad/query_states"], arrays["labels/sad/actions"]
    assert FAMILY.are_optimal(goals, queries, labels).mean() > 0.7
    queries, labels = arrays["labels/dpt_star/query_states"], arrays["labels/dpt_star/actions"]
    assert FAMILY.are_optimal(goals, queries, labels).all()


def test_more_episodes_with_early_stop_score_by_mean_discounted_return():
    """N_ep = 2 against the law by enumeration of both episodes' hitting steps."""
    law = hitting_step_law(MDP.outcomes.at(0), UNIFORM, 3)
    payoff = np.append(0.9 ** np.arange(3), 0.0)
    joint = np.zeros((16, 5))
    # Distribution of an action's score: all pairs of outcomes, rounded to merge equal sums.
    scores, index = np.unique(np.round(payoff[:, None] + payoff, 9), return_inverse=True)
    index = index.reshape(-1)
    for state in range(16):
        chances = np.array(
            [np.bincount(index, np.outer(law[state, a], law[state, a]).ravel()) for a in range(5)]
        )
        below = chances.cumsum(axis=1) - chances
        for action in range(5):
            win = chances[action].copy()
            for other in range(5):
                if other != action:
                    win *= below[other] + (chances[other] if other > action else 0)
            joint[state, action] = win[scores > 0].sum()
    labels = sample(rule(trust_horizon=3, episodes_per_action=2))
    assert_law(labels, joint / joint.sum())


@pytest.mark.parametrize("random_ties", [False, True])
def test_the_fastest_of_several_episodes_has_the_exact_law(random_ties: bool):
    law = best_of(hitting_step_law(MDP.outcomes.at(0), UNIFORM, 4), 3)
    joint = label_chances(law, random_ties)
    chosen = rule(episodes_per_action=3, best_episode=True, random_ties=random_ties)
    assert_law(sample(chosen), joint / joint.sum())


def test_the_fastest_of_many_episodes_is_any_action_of_a_shortest_way():
    chosen = rule(trust_horizon=8, episodes_per_action=4096, best_episode=True, random_ties=True)
    labels = sample(chosen, n_tasks=4000)
    optimal = FAMILY.optimal_actions(GOAL)[0].astype(float)
    assert_law(labels, optimal / optimal.sum(axis=1, keepdims=True) / 16)


def test_a_rollout_that_is_slower_than_the_fastest_is_given_up():
    """With N_ep = 1,000 all rollouts but the first few last no longer than the shortest way."""
    law = hitting_step_law(MDP.outcomes.at(0), UNIFORM, 20)
    shortest = 1 + (law > 0).argmax(axis=-1).min(axis=-1)
    chosen = rule(trust_horizon=20, episodes_per_action=1000, best_episode=True)
    labels = sample(chosen, n_tasks=2000)
    rollouts = 5 * 1000 * 2000
    assert labels.transitions / rollouts == pytest.approx(shortest.mean(), rel=0.1)


def test_algorithm_3_picks_the_largest_discounted_return_over_full_rollouts():
    """A dense chain whose returns can be enumerated: two states, two actions, N = 2."""
    mdp = TabularMDPs(
        np.array([[[0, 1], [0, 1]]], np.uint16), np.array([[[0.2, 0.0], [0.5, 1.0]]], np.float32)
    )
    chosen = rule(trust_horizon=2, stop_at_reward=False, return_threshold=0.6)
    rewards = mdp.rewards[0].astype(float)
    joint = np.zeros((2, 2))
    for state in range(2):
        for second_0 in range(2):
            for second_1 in range(2):
                returns = [
                    rewards[state, a] + 0.9 * rewards[mdp.next_states[0, state, a], second]
                    for a, second in ((0, second_0), (1, second_1))
                ]
                if max(returns) >= 0.6:
                    joint[state, int(np.argmax(returns))] += 0.25
    assert_law(sample(chosen, mdp), joint / joint.sum())


def test_more_episodes_give_better_labels():
    optimal = FAMILY.optimal_actions(GOAL)[0]
    accuracy = [
        optimal[labels.query_states, labels.actions].mean()
        for labels in (sample(rule(episodes_per_action=n), n_tasks=4000) for n in (1, 8, 64))
    ]
    assert accuracy[0] < accuracy[1] < accuracy[2]
    assert accuracy[2] > 0.95


def test_a_threshold_that_nothing_reaches_is_an_error():
    with pytest.raises(UserError, match="trust_horizon"):
        sample(rule(stop_at_reward=False, return_threshold=1e9), n_tasks=1)


def test_the_luckiest_of_dense_returns_is_no_score():
    with pytest.raises(ValueError, match="sparse"):
        rule(stop_at_reward=False, best_episode=True)


DATA = DataConfig(tasks=10, trust_horizon=3)
LOWEST = DataConfig(tasks=10, trust_horizon=3, oracle_tie_break="lowest")


@pytest.mark.parametrize("ties", ["random", "lowest"])
def test_wrong_labels_of_the_oracle_have_their_exact_law(ties: str):
    """Every suboptimal action equally often; none where all actions are optimal."""
    family = make_family(DarkroomConfig(size=3, horizon=8, train_goals=7))
    data = DATA.model_copy(update={"oracle_tie_break": ties, "oracle_error": 0.3})
    optimal = family.optimal_actions(family.distinct["train"][:1])[0]
    asked = np.repeat(np.arange(9), 20_000)
    labels = optimal_labels(optimal[asked], data, np.random.default_rng(0))
    law = label_law(family, data, "labels/dpt_star")
    assert law is not None
    counts = np.zeros((9, 5))
    np.add.at(counts, (asked, labels), 1)
    assert counts / len(asked) == pytest.approx(law[0], abs=0.0015)
    assert (law[0] * ~optimal).sum() == pytest.approx(0.3)
    same = optimal_labels(np.ones((50, 5), np.bool_), data, np.random.default_rng(0))
    assert ties == "random" or not same.any()


def test_optimal_labels_are_all_the_optimal_actions_equally_often():
    optimal = FAMILY.optimal_actions(GOAL)
    states = np.repeat(np.arange(16, dtype=np.uint16), 500)
    labels = optimal_labels(optimal[0, states], DATA, np.random.default_rng(0))
    assert optimal[0, states, labels].all()
    lowest = optimal_labels(optimal[0, states], LOWEST, np.random.default_rng(0))
    assert (lowest == optimal[0, states].argmax(axis=1)).all()
    for state in range(16):
        counts = np.bincount(labels[states == state], minlength=5)[optimal[0, state]]
        assert (counts > 0).all()
        if len(counts) > 1:
            assert stats.chisquare(counts).pvalue > 1e-3
