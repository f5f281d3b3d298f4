"""Labels of later rounds on tables, against exact dynamic programming of the incumbent's policy."""

from functools import partial
from unittest.mock import Mock

import numpy as np
import pytest
from numpy.typing import NDArray

from sad_hpc.distill import make_block
from sad_hpc.distill.action_table import ActionTable, DrawnActions, LikeliestActions, action_table
from sad_hpc.distill.block import Transitions
from sad_hpc.distill.incumbent import Incumbent
from sad_hpc.distill.labels import LabelRule, Labels
from sad_hpc.distill.rollout_labels import distill_labels
from sad_hpc.experiment.behavior_policy import policy_table
from sad_hpc.experiment.sections import DataConfig
from sad_hpc.kernels.random import stream
from sad_hpc.tasks.base import make_family
from sad_hpc.tasks.darkroom import DarkroomConfig
from sad_hpc.tasks.mdps import FiniteMDPs, TabularMDPs
from tests.distill.laws import assert_law
from tests.distill.rules import make_rule
from tests.tasks.worlds import random_tables

K, N, GAMMA = 4, 5, 0.9
GENERATOR = np.random.default_rng(0)
SIZES = TASKS, STATES, ACTIONS = 300, 7, 3
DENSE = TabularMDPs(
    GENERATOR.integers(STATES, size=SIZES).astype(np.uint16),
    GENERATOR.normal(size=SIZES).astype(np.float32),
)
ROOM = make_family(DarkroomConfig(size=4, train_goals=10))
GOALS = ROOM.distinct["train"]
ROOMS = ROOM.mdps(GOALS)
rule = partial(make_rule, trust_horizon=N, discount=GAMMA)


def likeliest(n_tasks: int, n_states: int, n_actions: int, seed: int) -> LikeliestActions:
    """Arbitrary actions of an incumbent."""
    generator = np.random.default_rng(seed)
    drawn = generator.integers(n_actions, size=(n_tasks, n_states))
    return LikeliestActions(drawn.astype(np.uint8))


def labels_of(mdps: FiniteMDPs, table: ActionTable, chosen: LabelRule, queries: int = K) -> Labels:
    """K labels in each of the tables' tasks."""
    tasks = np.repeat(np.arange(len(table.likeliest)) % mdps.sizes[0], queries)
    uniform = policy_table("uniform", mdps.sizes[2])
    return distill_labels(mdps, tasks, uniform, chosen, stream(0, 0, 0, "sad"), incumbent=table)


def scores_of(
    mdps: FiniteMDPs, policy: NDArray[np.float64], steps: int, stop: bool = False
) -> NDArray[np.float64]:
    """(M, S, A): expected discounted return of an action and then `policy` (M, S, A), N steps.

    With `stop`, a rollout ends at its first reward.
    """
    may, tasks = mdps.outcomes, np.arange(mdps.sizes[0])[:, None, None, None]
    values = np.zeros(mdps.sizes[:2])
    for _ in range(steps):
        goes_on = ~may.ends & ~(stop & (may.rewards > 0))
        later = GAMMA * values[tasks, may.next_states] * goes_on
        scores = (may.chances * (may.rewards + later)).sum(axis=-1)
        values = (policy * scores).sum(axis=-1)
    return scores


def expected_labels(
    scores: NDArray[np.float64], table: LikeliestActions, labels: Labels
) -> NDArray[np.int64]:
    """(m,): the best action in each query state; the incumbent's where it is among the best."""
    tasks = np.repeat(np.arange(len(table.likeliest)), len(labels.actions) // len(table.likeliest))
    here = scores[tasks % len(scores), labels.query_states]
    equal = np.isclose(here, here.max(axis=1, keepdims=True), rtol=1e-12, atol=0)
    kept = table.likeliest[tasks, labels.query_states]
    return np.where(equal[np.arange(len(kept)), kept], kept, equal.argmax(axis=1))


def one_hot(table: LikeliestActions, n_actions: int) -> NDArray[np.float64]:
    return np.eye(n_actions)[table.likeliest]


@pytest.mark.parametrize("steps", [1, 2, N])
def test_a_label_is_the_best_first_action_before_what_the_incumbent_does(steps: int) -> None:
    table = likeliest(*SIZES, seed=1)
    chosen = rule(trust_horizon=steps, stop_at_reward=False, return_threshold=None)
    labels = labels_of(DENSE, table, chosen)
    scores = scores_of(DENSE, one_hot(table, ACTIONS), steps)
    np.testing.assert_array_equal(labels.actions, expected_labels(scores, table, labels))
    assert labels.transitions == TASKS * K * ACTIONS * steps
    other = labels_of(DENSE, likeliest(*SIZES, seed=2), chosen)
    assert (other.actions != labels.actions).any() == (steps > 1)


@pytest.mark.parametrize("random_ties", [False, True])
def test_ties_of_algorithm_5_keep_the_incumbents_action(random_ties: bool) -> None:
    table = likeliest(len(GOALS) * 30, *ROOMS.sizes[1:], seed=3)
    several = TabularMDPs(*(np.tile(part, (30, 1, 1)) for part in vars(ROOMS).values()))
    scores = scores_of(several, one_hot(table, 5), N, stop=True)
    labels = labels_of(several, table, rule(random_ties=random_ties))
    tasks = np.repeat(np.arange(len(several.rewards)), K)
    here = scores[tasks, labels.query_states]
    assert (here.max(axis=1) > 0).all()
    kept = table.likeliest[tasks, labels.query_states]
    tied = np.isclose(here[np.arange(len(kept)), kept], here.max(axis=1))
    assert 0.1 < tied.mean() < 0.9 and (labels.actions[tied] == kept[tied]).all()
    best = np.isclose(here, here.max(axis=1, keepdims=True))
    assert best[np.arange(len(kept)), labels.actions].all()
    lowest = (labels.actions == best.argmax(axis=1))[~tied]
    assert lowest.all() != random_ties


@pytest.mark.parametrize("best_episode", [False, True])
def test_an_optimal_incumbent_keeps_all_of_its_labels(best_episode: bool) -> None:
    generator = np.random.default_rng(4)
    optimal = ROOM.optimal_actions(GOALS)
    one_of_them = (optimal * (1 + generator.random(optimal.shape))).argmax(axis=2)
    table = LikeliestActions(one_of_them.astype(np.uint8))
    chosen = rule(trust_horizon=8, episodes_per_action=3, best_episode=best_episode)
    labels = labels_of(ROOMS, table, chosen, queries=60)
    tasks = np.repeat(np.arange(len(GOALS)), 60)
    np.testing.assert_array_equal(labels.actions, table.likeliest[tasks, labels.query_states])


def test_equal_rollouts_are_made_once() -> None:
    table = likeliest(*SIZES, seed=1)
    dense = partial(rule, stop_at_reward=False, return_threshold=None)
    once, often = (labels_of(DENSE, table, dense(episodes_per_action=n)) for n in (1, 50))
    np.testing.assert_array_equal(once.actions, often.actions)
    assert once.transitions == often.transitions


def test_labels_of_random_steps_have_the_best_expected_return() -> None:
    """Rollouts of the incumbent differ there, and their mean is near its expectation."""
    mdps = random_tables()
    table = likeliest(*mdps.sizes, seed=5)
    chosen = rule(stop_at_reward=False, return_threshold=None, episodes_per_action=20_000)
    labels = labels_of(mdps, table, chosen, queries=20)
    scores, others = (
        scores_of(mdps, policy, N) for policy in (one_hot(table, 3), np.full(mdps.sizes, 1 / 3))
    )
    key = np.repeat(np.arange(2), 20), labels.query_states
    second, best = np.sort(scores[key], axis=1)[:, -2:].T
    clear = best - second > 0.1  # by more than five standard errors
    np.testing.assert_array_equal(labels.actions[clear], scores[key].argmax(axis=1)[clear])
    assert clear.mean() > 0.5
    assert (scores[key].argmax(axis=1) != others[key].argmax(axis=1))[clear].sum() > 3


def test_drawn_actions_have_the_exact_law() -> None:
    """Algorithm 5 with N_ep = 1: hitting steps of the five actions are independent."""
    generator = np.random.default_rng(6)
    goal = ROOM.mdps(GOALS[:1])
    logits = generator.normal(size=(1, 16, 5)).astype(np.float32)
    weights = np.exp(logits[0] / 0.7)
    policy = weights / weights.sum(axis=1, keepdims=True)
    hits = np.zeros((16, 5, N + 1))  # of a first reward at step 1..N, or of none
    after = goal.next_states[0]
    for step in range(N):
        before = (policy * hits[:, :, step - 1]).sum(axis=1)
        hits[:, :, step] = goal.rewards[0] if step == 0 else before[after] * (goal.rewards[0] == 0)
    hits[:, :, N] = 1 - hits.sum(axis=2)
    joint = np.zeros((16, 5))
    later = 1 - hits.cumsum(axis=2)  # of more steps
    kept = logits[0].argmax(axis=1)
    for action in range(5):
        wins = hits[:, action, :N].copy()
        for other in range(5):
            # The incumbent's action wins ties, otherwise the lowest.
            first = (action == kept) | ((other != kept) & (action < other))
            least = np.where(first[:, None], later[:, other] + hits[:, other], later[:, other])
            wins *= 1 if other == action else least[:, :N]
        joint[:, action] = wins.sum(axis=1)
    table = action_table(np.tile(logits, (3000, 1, 1)), 0.7)
    assert_law(labels_of(goal, table, rule(), queries=20), joint / joint.sum())


def test_a_temperature_sharpens_the_incumbent() -> None:
    logits = np.random.default_rng(7).normal(size=(5, 6, 4)).astype(np.float32)
    greedy, sharp = action_table(logits, 0.0), action_table(logits, 1e-3)
    assert isinstance(greedy, LikeliestActions) and isinstance(sharp, DrawnActions)
    np.testing.assert_array_equal(greedy.likeliest, logits.argmax(axis=2))
    np.testing.assert_array_equal(sharp.likeliest, greedy.likeliest)
    np.testing.assert_array_equal((sharp.bounds < 0.5).sum(axis=2), greedy.likeliest)
    softmax = np.exp(logits) / np.exp(logits).sum(axis=2, keepdims=True)
    found = np.diff(action_table(logits, 1.0).bounds, axis=2, prepend=0)
    np.testing.assert_allclose(found, softmax, atol=1e-6)
    assert (action_table(logits, 1.0).bounds[..., -1] == 1).all()


def test_every_task_of_a_block_follows_the_incumbent_under_its_own_context() -> None:
    """An optimal one, that finds each task's goal by the task's own states and rewards."""
    family = make_family(DarkroomConfig(size=3, horizon=60, train_goals=6))
    data = DataConfig(tasks=90, trust_horizon=6, queries_per_task=3, rounds=2, own_contexts=0)
    asked: list[Transitions] = []
    not_asked = Mock(side_effect=AssertionError)

    def incumbent(context: Transitions) -> LikeliestActions:
        asked.append(context)
        assert context.rewards.any(axis=1).all()
        rewarded = context.rewards.argmax(axis=1)
        goals = context.next_states[np.arange(len(rewarded)), rewarded]
        return LikeliestActions(family.optimal_actions(goals).argmax(axis=2).astype(np.uint8))

    arrays = make_block(family, data, "train", 0, incumbent=Incumbent(incumbent, not_asked)).arrays
    plain = make_block(family, data, "train", 0).arrays
    changed = {name for name in arrays if (arrays[name] != plain[name]).any()}
    assert changed == {"labels/sad/query_states", "labels/sad/actions"}
    states = family.state_numbers(arrays["labels/sad/query_states"])
    expected = incumbent(asked[0]).likeliest[np.arange(len(states))[:, None], states]
    np.testing.assert_array_equal(arrays["labels/sad/actions"], expected)
