"""Contexts and labels of simulated tasks, against the exact laws of the same tasks as tables."""

import itertools
from collections.abc import Callable
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import norm

from sad_hpc.distill import make_block
from sad_hpc.distill.block import Transitions
from sad_hpc.distill.incumbent import Incumbent
from sad_hpc.distill.labels import LabelRule
from sad_hpc.distill.rollout import Behavior, Following, Followings
from sad_hpc.distill.simulated import Distillation
from sad_hpc.errors import UserError
from sad_hpc.experiment.sections import DataConfig
from sad_hpc.ideal.label_law import label_law
from tests.simulators import HORIZON, Rooms, RoomSimulators

SIGMAS = 5


class Slopes(Rooms):
    """Rooms in which any vector is an action, and the highest first component is paid best."""

    components, sparse_reward = 2, False

    @property
    def simulator(self) -> type[RoomSimulators]:
        """Implement `Rooms.simulator`."""
        return SlopeSimulators


class SlopeSimulators(RoomSimulators):
    """Agents of `Slopes`."""

    def step(self, actions: NDArray[np.float32]) -> NDArray[np.float32]:
        """Implement `Simulators.step`."""
        return np.minimum(actions[:, 0], 0.5)


@pytest.mark.parametrize(
    "ties, best, episodes, common, continuation",
    [
        ("lowest", "mean", 1, False, 1.0),
        ("random", "fastest", 2, False, 1.0),
        ("random", "mean", 1, True, 1.0),
        ("lowest", "mean", 1, False, 0.5),
    ],
)
def test_labels_have_the_law_of_algorithm_5(
    ties: str, best: str, episodes: int, common: bool, continuation: float
) -> None:
    family = Rooms()
    data = DataConfig(
        tasks=2000, trust_horizon=4, episodes_per_action=episodes, score=best, tie_break=ties,
        queries_per_task=8, seed=3, common_actions=common, continuation=continuation,
    )  # fmt: skip
    block = make_block(family, data, "train", 0)
    exact = label_law(family.room, data, "labels/sad")
    goals = {tuple(goal): number for number, goal in enumerate(family.room.distinct["train"])}
    tasks = [goals[tuple(goal)] for goal in block.arrays["tasks/parameters"].astype(int)]
    states = family.room.state_numbers(block.arrays["labels/sad/query_states"].astype(np.int64))
    counts = np.zeros_like(exact)
    np.add.at(counts, (np.array(tasks)[:, None], states, block.arrays["labels/sad/actions"]), 1)
    # Which states are asked depends on random play; given one, the label's law is the algorithm's.
    asked = counts.sum(axis=2, keepdims=True)
    law = exact / np.maximum(exact.sum(axis=2, keepdims=True), 1e-300)
    error = np.sqrt(asked * law * (1 - law))
    assert (asked > 30).mean() > 0.8
    assert (np.abs(counts - asked * law) <= SIGMAS * error + 1e-9).all()


def test_drawn_trust_horizons_of_one_step_label_the_neighbours_of_the_goal() -> None:
    data = DataConfig(tasks=200, trust_horizon=4, continuation=1e-9)
    arrays = make_block(Rooms(), data, "train", 0).arrays
    ways = arrays["labels/sad/query_states"][:, 0] - arrays["tasks/parameters"]
    assert set(np.abs(ways).sum(axis=1)) <= {0, 1}


def test_labels_of_dense_rewards_have_the_law_of_algorithm_3() -> None:
    noise, episodes = 1.0, 3
    family = Rooms(noise)
    data = DataConfig(
        tasks=4000, trust_horizon=1, episodes_per_action=episodes, queries_per_task=4,
        return_threshold=None, seed=5, block_tasks=4000,
    )  # fmt: skip
    block = make_block(family, data, "train", 0)
    states = block.arrays["labels/sad/query_states"]
    goals = block.arrays["tasks/parameters"][:, None]
    # Right of the goal's left neighbour lies the goal: one action is paid 1 there, the others 0.
    beside = ((goals - states) == (1, 0)).all(axis=2)
    right = (block.arrays["labels/sad/actions"][beside] == 0).mean()
    scale = noise / np.sqrt(episodes)
    points = np.linspace(-8, 8, 4001) * scale
    density = norm.pdf(points, 1, scale) * norm.cdf(points, 0, scale) ** 4
    expected = np.trapezoid(density, points)
    assert abs(right - expected) < SIGMAS * np.sqrt(0.25 / beside.sum())
    assert beside.sum() > 500


def test_label_rollouts_with_common_actions_have_the_enumerated_law() -> None:
    """The law of labels by enumeration: all first actions are followed by the same 25 pairs."""
    family = Rooms()
    family.sparse_reward = False
    data = DataConfig(tasks=4000, trust_horizon=3, queries_per_task=8, common_actions=True)
    arrays = make_block(family, data, "train", 0).arrays
    states, labels = (arrays[f"labels/sad/{name}"] for name in ("query_states", "actions"))
    goals = np.broadcast_to(arrays["tasks/parameters"][:, None].astype(int), states.shape)
    law = np.zeros((*labels.shape, 5))
    for pair in itertools.product(range(5), repeat=2):
        scores = np.zeros_like(law)
        for first in range(5):
            cells = states.astype(int)
            for step, action in enumerate((first, *pair)):
                cells, paid = family.room.step(cells, np.full(labels.shape, action), goals)
                scores[..., first] += data.discount**step * paid
        best = scores == scores.max(axis=2, keepdims=True)
        law += best / best.sum(axis=2, keepdims=True) / 25
    places = (states - goals).astype(int)
    for place in np.unique(places.reshape(-1, 2), axis=0):
        here = (places == place).all(axis=2)
        expected, found = law[here].sum(axis=0), np.bincount(labels[here], minlength=5)
        error = np.sqrt((law[here] * (1 - law[here])).sum(axis=0))
        assert (np.abs(found - expected) <= SIGMAS * error + 1e-9).all(), place


@pytest.mark.parametrize("family", [Rooms(), Slopes()], ids=["numbers", "vectors"])
def test_common_actions_differ_between_query_states_and_rollouts_alone(
    family: Rooms, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    def step(self: RoomSimulators, actions: NDArray[Any]) -> NDArray[np.float32]:
        seen.append(actions.copy())
        return np.zeros(len(actions), np.float32)

    two = {"trust_horizon": 2, "episodes_per_action": 2, "candidates": 5}
    data = DataConfig(tasks=10, common_actions=True, **two)
    generator = np.random.default_rng(0)
    parameters = family.draw_tasks("train", 30, generator)
    rule = LabelRule.of(data, sparse_reward=False)
    behavior = Behavior.of(family, np.arange(5))
    search = Distillation(family, parameters, behavior, None, rule, 1, generator)
    simulators = family.simulators(parameters, generator)
    rows = np.arange(30)
    monkeypatch.setattr(family.simulator, "step", step)
    search.scores(simulators, rows, behavior.candidates(30, rule, generator), rows)
    later = seen[1].reshape(30, 5, 2, -1)
    assert (later == later[:, :1]).all()
    assert (later[:, 0, 0] != later[:, 0, 1]).any(axis=1).sum() > 15
    assert (later[1:, 0, 0] != later[:-1, 0, 0]).any(axis=1).sum() > 15


def test_equal_scores_of_dense_rewards_are_broken_at_random() -> None:
    family = Rooms()
    family.sparse_reward = False
    data = DataConfig(tasks=2000, trust_horizon=1, queries_per_task=4, return_threshold=None)
    arrays = make_block(family, data, "train", 0).arrays
    goals = arrays["tasks/parameters"][:, None]
    far = abs(goals - arrays["labels/sad/query_states"]).sum(axis=2) > 1
    tied = np.bincount(arrays["labels/sad/actions"][far], minlength=5)
    assert abs(tied / tied.sum() - 0.2).max() < SIGMAS * np.sqrt(0.16 / tied.sum())


def test_contexts_are_episodes_one_after_another() -> None:
    family = Rooms(ends=True)
    data = DataConfig(tasks=500, trust_horizon=4, seed=1)
    arrays = make_block(family, data, "train", 0).arrays
    states, ends = arrays["transitions/states"], arrays["transitions/ends"] > 0
    goals = arrays["tasks/parameters"][:, None]
    cells, paid = family.room.step(
        states.astype(int), arrays["transitions/actions"], goals.astype(int)
    )
    np.testing.assert_array_equal(cells, arrays["transitions/next_states"])
    np.testing.assert_array_equal(paid, arrays["transitions/rewards"])
    np.testing.assert_array_equal(ends, paid > 0)
    assert 0.02 < ends.mean() < 0.5
    follows = (states[:, 1:] == arrays["transitions/next_states"][:, :-1]).all(axis=2)
    assert follows[~ends[:, :-1]].all()
    assert (states != goals).any(axis=2).all()
    share = np.bincount(arrays["transitions/actions"].ravel(), minlength=5) / states[..., 0].size
    assert abs(share - 0.2).max() < SIGMAS * np.sqrt(0.16 / states[..., 0].size)
    assert states.shape == (400, HORIZON, 2)


def test_a_block_depends_on_its_number_and_seed_alone() -> None:
    family = Rooms(noise=0.5)
    data = DataConfig(tasks=100, trust_horizon=3, block_tasks=20, return_threshold=None)
    first, again, other = (make_block(family, data, "train", number) for number in (1, 1, 2))
    for name, array in first.arrays.items():
        np.testing.assert_array_equal(array, again.arrays[name])
    assert (first.arrays["transitions/states"] != other.arrays["transitions/states"]).any()
    longer = data.model_copy(update={"trust_horizon": 5})
    kept = make_block(family, longer, "train", 1).arrays["transitions/states"]
    np.testing.assert_array_equal(kept, first.arrays["transitions/states"])


def test_query_states_that_are_never_good_enough_are_given_up() -> None:
    data = DataConfig(tasks=10, trust_horizon=1, return_threshold=100.0)
    with pytest.raises(UserError, match=r"lower the threshold"):
        make_block(Rooms(noise=0.1), data, "train", 0)


def test_query_states_that_are_seldom_good_enough_are_found() -> None:
    """One in sixty, by noise alone: of some hundred labels the last takes hundreds of tries."""
    least = 2.7
    data = DataConfig(tasks=300, trust_horizon=1, return_threshold=least, queries_per_task=1)
    arrays = make_block(Rooms(noise=1.0), data, "train", 0).arrays
    law = 1 - norm.cdf(least) ** 5
    assert law < 0.02
    assert arrays["labels/sad/actions"].shape == (240, 1)


LIKELIEST = 3


def following(policy: Callable[[Transitions, np.random.Generator], Followings]) -> Incumbent:
    return Incumbent(policy, play=Mock(side_effect=AssertionError("contexts are random play")))


def always_right(contexts: Transitions, generator: np.random.Generator) -> Followings:
    """An incumbent that goes +x in rollouts, though -y is its likeliest action."""

    def followings(tasks: np.ndarray) -> Following:
        context = contexts.at(tasks)

        def act(simulators: RoomSimulators, step: int) -> np.ndarray:
            found, when = np.nonzero(context.rewards)
            goals = context.next_states[found, when]
            np.testing.assert_array_equal(goals, simulators.goals[found])
            return np.zeros(len(tasks), np.int64)

        nothing = Mock(side_effect=AssertionError("every action is a candidate"))
        return Following(act, lambda observations: np.full(len(tasks), LIKELIEST), nothing)

    return followings


def test_labels_are_best_before_what_the_incumbent_does() -> None:
    """The label is the action after which +x reaches the goal first; ties keep the likeliest."""
    family = Rooms()
    data = DataConfig(tasks=200, trust_horizon=3, queries_per_task=8, seed=2, own_contexts=0)
    arrays = make_block(family, data, "train", 0, incumbent=following(always_right)).arrays
    states = arrays["labels/sad/query_states"].astype(int)
    goals = np.broadcast_to(arrays["tasks/parameters"][:, None].astype(int), states.shape)
    steps = np.full((*states.shape[:2], 5), 9)
    for action in range(5):
        cells, chosen = states, np.full(states.shape[:2], action)
        for step in (2, 1, 0):  # the first action, and twice +x
            cells, paid = family.room.step(cells, chosen, goals)
            steps[..., action] = np.where(
                (steps[..., action] == 9) & (paid > 0), 2 - step, steps[..., action]
            )
            chosen = np.zeros_like(chosen)
    assert (steps.min(axis=2) < 9).all()  # nothing else is accepted
    tied = steps[..., LIKELIEST] == steps.min(axis=2)
    assert (tied & (steps.argmin(axis=2) != LIKELIEST)).any()
    expected = np.where(tied, LIKELIEST, steps.argmin(axis=2))
    np.testing.assert_array_equal(arrays["labels/sad/actions"], expected)
    assert len(np.unique(arrays["labels/sad/actions"])) > 2


@pytest.mark.parametrize("ties", ["lowest", "random"])
def test_an_incumbent_of_equal_scores_keeps_all_of_its_actions(ties: str) -> None:
    """So a round does not change what is solved, such as a pole that any first action keeps up."""
    family = Rooms(ends=True)
    family.sparse_reward = False
    data = DataConfig(tasks=400, trust_horizon=1, queries_per_task=4, tie_break=ties)
    data = data.model_copy(update={"return_threshold": None, "own_contexts": 0.0})
    arrays = make_block(family, data, "train", 0, incumbent=following(always_right)).arrays
    goals = arrays["tasks/parameters"][:, None]
    far = abs(goals - arrays["labels/sad/query_states"]).sum(axis=2) > 1
    assert far.sum() > 100 and (arrays["labels/sad/actions"][far] == LIKELIEST).all()


def heights(likeliest: float, drawn: float) -> Incumbent:
    """An incumbent of `Slopes` with these heights of its likeliest and of drawn vectors."""
    behavior = Behavior.of(Slopes(), np.arange(5))

    def vectors(height: float) -> Callable[[np.ndarray], np.ndarray]:
        vector = np.array([height, -0.25], np.float32)
        return lambda observations: np.tile(vector, (len(observations), 1))

    def incumbent(contexts: Transitions, generator: np.random.Generator) -> Followings:
        act = behavior.act(generator)
        return lambda tasks: Following(act, vectors(likeliest), vectors(drawn))

    return following(incumbent)


def labels_of_slopes(incumbent: Incumbent, **settings: int) -> np.ndarray:
    """The heights (n,) of labels that are the incumbent's vectors, NaN for the others."""
    family = Slopes()
    family.sparse_reward = False
    data = DataConfig(tasks=100, trust_horizon=1, return_threshold=None, own_contexts=0, **settings)
    block = make_block(family, data, "train", 0, incumbent=incumbent)
    vectors = block.arrays["labels/sad/actions"].reshape(-1, 2)
    return np.where(vectors[:, 1] == -0.25, vectors[:, 0], np.nan)


@pytest.mark.parametrize(
    "height, kept", [(0.5, 1.0), (0.7, 1.0), (0.49, 1.0), (0.48, 0.0), (-1.0, 0.0)]
)
def test_the_incumbents_vector_is_a_candidate_and_keeps_ties(height: float, kept: float) -> None:
    """The best is paid 0.5, uniform ones -0.0625 on average, and 0.011 of that is a tie."""
    labels = labels_of_slopes(heights(height, drawn=-1.0))
    assert (labels == np.float32(height)).mean() == pytest.approx(kept, abs=0.03)


@pytest.mark.parametrize("candidates, uniform", [(2, 1), (4, 2), (6, 3)])
def test_half_of_the_candidates_are_the_incumbents(candidates: int, uniform: int) -> None:
    """Its vector is the label if all uniform ones are lower."""
    settings = {"candidates": candidates, "queries_per_task": 60}
    likeliest, drawn = (0.125, -1) if candidates == 2 else (-1, 0.125)
    labels = labels_of_slopes(heights(likeliest, drawn), **settings)
    expected = (1.125 / 2) ** uniform
    error = np.sqrt(expected * (1 - expected) / len(labels))
    assert abs((labels == 0.125).mean() - expected) < SIGMAS * error
