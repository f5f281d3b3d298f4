"""Contexts of a model's own play: which episode of a run they are, and what the model did in it."""

import numpy as np
import pytest
import torch

from sad_hpc.distill.block import Transitions
from sad_hpc.distill.incumbent import EPISODES, with_own_play
from sad_hpc.evaluate.episode import as_context, as_numbers, no_transitions
from sad_hpc.evaluate.own_play import _episodes_of_runs, simulator_play, table_play
from sad_hpc.evaluate.policy import state_logits
from sad_hpc.evaluate.simulated import Episodes
from sad_hpc.experiment.sections import ModelConfig
from sad_hpc.model.context import Context, Inputs, Queries
from sad_hpc.model.transformer import Transformer
from sad_hpc.tasks.base import TaskFamily, make_family
from sad_hpc.tasks.darkroom import DarkroomConfig
from tests.simulators import HORIZON, Rooms

ROOM = make_family(DarkroomConfig(size=4, horizon=10, train_goals=10))
GOALS = ROOM.distinct["train"]


def model_of(family: TaskFamily) -> Transformer:
    torch.manual_seed(1)
    network = Transformer(ModelConfig(dropout=0.0), Inputs.of_family(family)).eval()
    for layer, size in ((network.embed, 3.0), (network.head, 3.0), (network.positions, 0.0)):
        torch.nn.init.normal_(layer.weight, std=size)  # so that answers differ from state to state
    return network


def numbered(rewards: np.ndarray) -> Transitions:
    """Transitions whose every part is `rewards`."""
    return Transitions(rewards, rewards, rewards, rewards)


def test_a_run_ends_with_the_episode_that_is_wanted() -> None:
    asked: list[list[int]] = []

    def next_episode(agents: np.ndarray, before: Transitions) -> Transitions:
        asked.append(agents.tolist())
        if before.rewards.shape[1]:
            assert (before.rewards[:, 0] // 10 == agents).all()
        return numbered((agents * 10 + len(asked))[:, None].astype(np.float32))

    wanted = np.array([2, 1, 4, 2])
    played = _episodes_of_runs(wanted, numbered(np.empty((4, 0))), next_episode)
    np.testing.assert_array_equal(played.rewards[:, 0], np.arange(4) * 10 + wanted)
    assert asked == [[0, 1, 2, 3], [0, 2, 3], [2], [2]]


def play(model: Transformer, mdp_of_task: np.ndarray, episodes: np.ndarray) -> Context:
    generator = np.random.default_rng(0)
    tasks = ROOM.mdps(GOALS), mdp_of_task
    played = table_play(model, ROOM, tasks, episodes, generator, 8)
    return Context.of_parts(played.parts)


def test_cold_play_does_what_the_model_says_after_the_episode_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sad_hpc.evaluate.own_play.TEMPERATURES", (0.0,))
    model, mdps = model_of(ROOM), ROOM.mdps(GOALS)
    mdp_of_task = np.random.default_rng(1).integers(len(GOALS), size=30)
    episodes = np.arange(30) % 3 + 1
    before = as_context(ROOM, no_transitions(ROOM, 30))
    for number in (1, 2, 3):
        answers = state_logits(model, ROOM, before, 8).argmax(axis=2)
        before = play(model, mdp_of_task, np.full(30, number))
        played = as_numbers(ROOM, before)
        rows = np.arange(30)[:, None]
        np.testing.assert_array_equal(played.actions, answers[rows, played.states])
        key = mdp_of_task[:, None], played.states, played.actions
        np.testing.assert_array_equal(played.next_states, mdps.next_states[key])
        np.testing.assert_array_equal(played.rewards, mdps.rewards[key])
        assert (played.states[:, 0] == ROOM.start_state).all()
        mixed = as_numbers(ROOM, play(model, mdp_of_task, episodes))
        of_number = episodes == number
        np.testing.assert_array_equal(mixed.actions[of_number], played.actions[of_number])
    assert len(np.unique(played.actions)) > 1


def test_agents_of_one_task_play_at_different_temperatures() -> None:
    model, mdp_of_task = model_of(ROOM), np.zeros(400, np.int64)
    torch.nn.init.normal_(model.head.weight, std=0.1)
    played = play(model, mdp_of_task, np.ones(400, np.int64))
    runs, counts = np.unique(played.actions.numpy(), axis=0, return_counts=True)
    # Three of the nine temperatures are at most 0.05, which is as good as greedy.
    assert 0.2 < counts.max() / 400 < 0.9 and len(runs) > 20


def test_simulators_are_played_by_what_the_model_says_after_the_episode_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sad_hpc.evaluate.own_play.TEMPERATURES", (0.0,))
    recorded: list[Transitions] = []
    plain = Episodes.rollout

    def recording(*arguments: object) -> Transitions:
        recorded.append(plain(*arguments))
        return recorded[-1]

    monkeypatch.setattr(Episodes, "rollout", recording)
    family, generator = Rooms(), np.random.default_rng(0)
    parameters = family.draw_tasks("train", 12, generator)
    model = model_of(family)
    played = simulator_play(model, family, parameters, np.full(12, 2), generator, 8)
    first, second = recorded
    assert played.parts.keys() == second.parts.keys()
    prefixes = torch.full((*second.actions.shape, 1), HORIZON)
    queries = Queries(torch.from_numpy(second.states), prefixes)
    with torch.no_grad():
        answers = model(Context.of_parts(first.parts), queries).argmax(dim=2).numpy()
    np.testing.assert_array_equal(played.actions, answers)
    assert (second.actions != first.actions).any()


def test_a_share_of_the_contexts_is_own_play() -> None:
    context = numbered(np.zeros((2000, 5), np.float32))
    asked = {}

    def play(rows: np.ndarray, episodes: np.ndarray, generator: np.random.Generator) -> Transitions:
        asked.update(rows=rows, episodes=episodes)
        return numbered(np.full((len(rows), 5), 7, np.float32))

    mixed, steps = with_own_play(context, 0.3, play, np.random.default_rng(0))
    own = (mixed.rewards == 7).all(axis=1)
    np.testing.assert_array_equal(np.flatnonzero(own), asked["rows"])
    assert 0.26 < own.mean() < 0.34 and not mixed.rewards[~own].any() and not context.rewards.any()
    assert set(asked["episodes"]) == set(range(1, EPISODES + 1))
    assert steps == asked["episodes"].sum() * 5
    unchanged, steps = with_own_play(context, 0.0, play, np.random.default_rng(0))
    assert unchanged is context and steps == 0
