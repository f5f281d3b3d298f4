"""Evaluation on simulated tasks: episodes that end early, and the model's answers."""

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from sad_hpc.dataset.reader import Arrays
from sad_hpc.evaluate.acting import greedy
from sad_hpc.evaluate.encoded import EncodedContexts, TaskContexts
from sad_hpc.evaluate.episode import returns_of
from sad_hpc.evaluate.evaluation import Evaluation
from sad_hpc.evaluate.policy import Trained, make_ready
from sad_hpc.evaluate.rollout_policy import deciding_in
from sad_hpc.evaluate.simulated import (
    Decide,
    Episodes,
    acting,
    evaluate_simulated,
    tokens_of,
)
from sad_hpc.experiment.sections import EvaluateConfig, ModelConfig
from sad_hpc.model import bins
from sad_hpc.model.context import Context, Inputs, Queries
from sad_hpc.model.transformer import Transformer
from tests.simulators import HORIZON, Rooms


def model_of(family: Rooms) -> Transformer:
    torch.manual_seed(0)
    return Transformer(ModelConfig(dropout=0.0), Inputs.of_family(family)).eval()


def make_columns(family: Rooms, count: int, generator: np.random.Generator) -> Arrays:
    """Return columns of `count` test tasks, with contexts of random play."""
    parameters = family.draw_tasks("test", count, generator)
    seen = Episodes(family, parameters, generator).rollout(
        lambda simulators, step: generator.integers(5, size=count)
    )
    columns = {f"transitions/{name}": part for name, part in seen.parts.items()}
    return columns | {"tasks/parameters": parameters}


def test_encoded_contexts_answer_as_a_pass_through_the_whole_does() -> None:
    model = model_of(Rooms())
    tokens, queries = torch.randn(5, 7, model.inputs.width), torch.randn(5, 3, model.inputs.width)
    with torch.no_grad():
        expected = model.answer(tokens, queries, torch.full((5, 3), 7))
    encoded = EncodedContexts.of_tokens(model, tokens, 2)
    found = [encoded.ask(query) for query in queries.split(1, dim=1)]
    np.testing.assert_allclose(np.concatenate(found, axis=1), expected, atol=1e-5)
    rows = np.array([4, 0, 4])
    np.testing.assert_allclose(encoded.at(rows).ask(queries[rows]), expected[rows], atol=1e-5)


def test_an_episode_counts_until_its_end_and_the_agent_goes_on() -> None:
    family, generator = Rooms(ends=True), np.random.default_rng(1)
    episodes = Episodes(family, family.draw_tasks("test", 200, generator), generator)
    played = episodes.rollout(lambda simulators, step: generator.integers(5, size=200))
    found = played.rewards.max(axis=1) == 1
    assert 0.2 < found.mean() < 1
    np.testing.assert_array_equal(returns_of(played), found)
    assert played.rewards.shape == (200, HORIZON) and played.rewards.sum() > found.sum()


def test_an_agent_does_in_each_state_what_the_model_says_there() -> None:
    family, generator = Rooms(), np.random.default_rng(2)
    model, parameters = model_of(family), family.draw_tasks("test", 20, generator)
    torch.nn.init.normal_(model.head.weight, std=3.0)
    random = Episodes(family, parameters, generator)
    seen = random.rollout(lambda simulators, step: generator.integers(5, size=20))
    context = Context.of_parts(seen.parts)
    played = Episodes(family, parameters, generator).rollout(acting(model, context, greedy, 8))
    prefixes = torch.full((20, HORIZON, 1), HORIZON)
    with torch.no_grad():
        logits = model(context, Queries(torch.from_numpy(played.states), prefixes))
    np.testing.assert_array_equal(played.actions, logits.argmax(dim=2))
    assert len(np.unique(played.actions)) > 2


def logits_of(decide: Decide, observations: NDArray[np.float32]) -> NDArray[np.float32]:
    """The logits (n, A) of actions that are numbers."""
    found = []

    def read(logits: NDArray[np.float32]) -> NDArray[np.int64]:
        found.append(logits)
        return greedy(logits)

    decide(observations, read)
    return found[0]


@pytest.mark.parametrize("simulators", [7, 10])
@pytest.mark.parametrize("kernel", [True, False])
def test_each_component_is_chosen_after_those_before_it(simulators: int, kernel: bool) -> None:
    """With few simulators of a task, and with many, which the kernel answers together."""
    torch.manual_seed(0)
    inputs = Inputs(5, 6, (0.0, 0.0), (1.0, 1.0), components=3)
    model = Transformer(ModelConfig(dropout=0.0), inputs)
    torch.nn.init.normal_(model.head.weight, std=3.0)
    make_ready(model, kernel)
    states, actions = torch.randn(4, 6, 2), 2 * torch.rand(4, 6, 3) - 1
    context = Context(states, actions, torch.randn(4, 6), states)
    tasks = np.repeat(np.arange(4), simulators)
    asked = torch.randn(len(tasks), 1, 2)
    contexts = TaskContexts(model, tokens_of(model, context, 2), 2)
    chosen = deciding_in(model, contexts, tasks)(asked[:, 0].numpy(), bins.likeliest)
    shown, after = context.map(lambda part: part[tasks]), torch.full((len(tasks), 1, 1), 6)
    vectors = torch.from_numpy(chosen)[:, None]
    with torch.no_grad():
        logits = model(shown, Queries(asked, after, actions=vectors))
        others = model(shown, Queries(asked, after, actions=-vectors))
    np.testing.assert_array_equal(chosen, bins.likeliest(logits.numpy()))
    assert (chosen != bins.likeliest(others.numpy()))[:, 1:].any(axis=0).all()


@pytest.mark.parametrize("kernel", [True, False])
@pytest.mark.parametrize("each", [3, 9])
def test_all_simulators_of_a_task_read_its_context(
    each: int, kernel: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With few simulators of each task and with many; some tasks have twice or thrice as many."""
    family, generator = Rooms(), np.random.default_rng(4)
    model, parameters = model_of(family), family.draw_tasks("test", 6, generator)
    torch.nn.init.normal_(model.head.weight, std=3.0)
    make_ready(model, kernel)
    seen = Episodes(family, parameters, generator).rollout(
        lambda simulators, step: generator.integers(5, size=6)
    )
    context = Context.of_parts(seen.parts)
    tasks = generator.permutation(np.repeat([0, 1, 1, 3, 4, 4, 4], each))  # none of two tasks
    monkeypatch.setattr("sad_hpc.evaluate.rollout_policy.SIMULATORS_A_PASS", 8)
    observations = family.simulators(parameters[tasks], generator).observations
    asked, after = torch.from_numpy(observations)[:, None], torch.full((len(tasks), 1, 1), HORIZON)
    with torch.no_grad():
        expected = model(context.map(lambda part: part[tasks]), Queries(asked, after))[:, 0].numpy()
    contexts = TaskContexts(model, tokens_of(model, context, 2), 2)
    found = logits_of(deciding_in(model, contexts, tasks), observations)
    np.testing.assert_allclose(found, expected, atol=1e-4)
    assert (expected[tasks == 0].mean(axis=0) - expected[tasks == 1].mean(axis=0)).std() > 0.1


@pytest.mark.parametrize("sparse", [True, False])
def test_rewards_in_the_contexts_are_counted_where_they_are_sparse(sparse: bool) -> None:
    family, generator = Rooms(), np.random.default_rng(3)
    family.sparse_reward = sparse
    model, columns = model_of(family), make_columns(family, 30, generator)
    settings = EvaluateConfig(online_episodes=4, headline_episodes=2)
    longest = HORIZON - 4
    modes = evaluate_simulated(
        family, Evaluation(Trained(model, longest), settings, generator), columns
    )
    if not sparse:
        assert all(mode.context_rewards is None for mode in modes.values())
        return
    offline, online = modes["offline"].context_rewards, modes["online"].context_rewards
    assert offline is not None and online is not None
    np.testing.assert_array_equal(
        offline[:, 0], (columns["transitions/rewards"][:, 4:] > 0).sum(axis=1)
    )
    # The first context is empty, a later one shows the last steps of the episode before.
    assert (online[:, 0] == 0).all()
    missed = modes["online"].values[:, :-1] - online[:, 1:]
    assert ((missed >= 0) & (missed <= 4)).all()
    assert missed.mean() > 0 and 0 < (online[:, 1:] > 0).mean() < 1


def test_until_a_first_reward_actions_are_drawn_as_ever() -> None:
    family, generator = Rooms(), np.random.default_rng(3)
    family.sparse_reward = True
    model, columns = model_of(family), make_columns(family, 60, generator)
    found = []
    for way in (False, True):
        settings = EvaluateConfig(online_episodes=4, headline_episodes=2, greedy_after_reward=way)
        evaluation = Evaluation(Trained(model, HORIZON), settings, np.random.default_rng(7))
        modes = evaluate_simulated(family, evaluation, columns)
        found.append(modes["online"])
    usual, settled = found
    same = (usual.context_rewards > 0).cumsum(axis=1) == 0
    assert (usual.values[same] == settled.values[same]).all() and 0.2 < same.mean() < 0.9
    assert (usual.values != settled.values).any()
