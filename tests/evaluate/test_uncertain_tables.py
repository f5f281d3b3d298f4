"""Evaluation on slippery lakes: stochastic steps, and episodes that terminate."""

import numpy as np
import pytest
import torch

from sad_hpc.distill import make_block
from sad_hpc.distill.block import Transitions
from sad_hpc.evaluate.agent_memory import History
from sad_hpc.evaluate.baselines import optimal_returns, policy_returns
from sad_hpc.evaluate.episode import as_context, as_numbers, play_episode, returns_of
from sad_hpc.evaluate.evaluation import Evaluation
from sad_hpc.evaluate.ideal import tasks_left
from sad_hpc.evaluate.policy import Trained
from sad_hpc.evaluate.tabular import evaluate_tabular
from sad_hpc.experiment.sections import DataConfig, EvaluateConfig, ModelConfig
from sad_hpc.ideal.answers import ideal_answers
from sad_hpc.ideal.label_law import label_law
from sad_hpc.ideal.posterior import Posterior, after_all, after_prefixes, consistent, together
from sad_hpc.model.context import Context, Inputs
from sad_hpc.model.transformer import Transformer
from tests.tasks.worlds import LAKES

N = 6000
MDPS = LAKES.mdps(np.repeat(np.arange(4, dtype=np.int16), N // 4)[:, None])
KINDS = LAKES.mdps(np.arange(4, dtype=np.int16)[:, None])
HORIZON = LAKES.config.horizon
NAMES = ("states", "actions", "rewards", "next_states", "ends")


def assert_mean(returns: np.ndarray, expected: np.ndarray) -> None:
    """Assert the mean return of each kind of lake, within 5 standard errors."""
    for mine, mean in zip(returns.reshape(4, -1), expected, strict=True):
        assert abs(mine.mean() - mean) < 5 * max(mine.std(), 0.02) / np.sqrt(mine.size)


def test_random_play_returns_what_dynamic_programming_says():
    generator = np.random.default_rng(0)
    episode = play_episode(LAKES, MDPS, lambda s, _: generator.integers(0, 4, N), generator)
    expected = policy_returns(KINDS, HORIZON, KINDS.starts, np.full(4, 0.25))
    assert_mean(returns_of(episode), expected)
    assert returns_of(episode).max() == 1 < episode.rewards.sum(axis=1).max()


def test_optimal_play_returns_what_dynamic_programming_says():
    values, actions = np.zeros((4, 16)), []
    for _ in range(HORIZON):
        worth = KINDS.action_values(values)
        actions.insert(0, worth.argmax(axis=-1))
        values = worth.max(axis=-1)
    kind = np.repeat(np.arange(4), N // 4)

    def act(states: np.ndarray, step: int) -> np.ndarray:
        return np.array(actions)[step][kind, states]

    episode = play_episode(LAKES, MDPS, act, np.random.default_rng(1))
    expected = optimal_returns(KINDS, HORIZON, KINDS.starts)
    assert_mean(returns_of(episode), expected)
    assert (expected > policy_returns(KINDS, HORIZON, KINDS.starts, np.full(4, 0.25))).all()


def test_an_episode_is_worth_nothing_more_after_its_end():
    rewards = np.array([[1.0, -1.0, 3.0, 5.0], [1.0, 1.0, 1.0, 1.0]], np.float32)
    ends = np.array([[0, 1, 0, 1], [0, 0, 0, 0]], np.uint8)
    nothing = np.zeros((2, 4), np.uint16)
    played = Transitions(nothing, nothing.astype(np.uint8), rewards, nothing, ends)
    assert returns_of(played).tolist() == [0.0, 4.0]


def test_weights_of_tasks_are_products_of_chances():
    generator = np.random.default_rng(2)
    posterior = Posterior.of_family(LAKES)
    assert posterior is not None
    episode = play_episode(LAKES, MDPS, lambda s, _: generator.integers(0, 4, N), generator)
    some = episode.map(lambda part: part[::500, :8])
    assert as_numbers(LAKES, as_context(LAKES, some)).parts.keys() == some.parts.keys()
    could = consistent(posterior.mdps, **some.parts)
    for n, t, g in np.ndindex(*could.shape):
        may = posterior.mdps.outcomes.at(g, some.states[n, t], some.actions[n, t])
        seen = some.next_states[n, t], some.rewards[n, t], some.ends[n, t]
        wanted = sum(p for p, *outcome in zip(*may, strict=True) if tuple(outcome) == seen)
        if t == 0 or some.ends[n, t - 1]:
            wanted *= posterior.mdps.starts[g, some.states[n, t]]
        assert could[n, t, g] == pytest.approx(wanted)
    products = could.prod(axis=1)
    products /= products.max(axis=1, keepdims=True)
    assert np.allclose(tasks_left(posterior, some), products)
    assert np.allclose(after_prefixes(could)[:, -1], products)
    assert np.allclose(together(after_all(could[:, :3]), after_all(could[:, 3:])), products)
    shares = products / products.sum(axis=1, keepdims=True)
    assert np.allclose(
        posterior.probabilities(products),
        np.einsum("ng,gsa->nsa", shares, posterior.probabilities(np.eye(4))),
    )


def block(split: str = "test") -> dict:
    data = DataConfig(tasks=4000, trust_horizon=6)
    return make_block(LAKES, data, split, 0).arrays


def test_ideal_answers_to_held_out_questions_are_bayes_rule():
    data = DataConfig(tasks=400, trust_horizon=6)
    arrays = make_block(LAKES, data, "train", 0).arrays
    columns = {name: arrays[f"transitions/{name}"][:20] for name in NAMES}
    columns["query_states"] = arrays["labels/sad/query_states"][:20]
    columns["parameters"] = arrays["tasks/parameters"][:20]
    found = ideal_answers(LAKES, data, "labels/sad", columns)
    law = label_law(LAKES, data, "labels/sad")
    assert found is not None and law is not None
    kinds = LAKES.mdps(LAKES.distinct["train"])
    numbers = {name: LAKES.state_numbers(columns[name]) for name in ("states", "next_states")}
    parts = {name: numbers.get(name, columns[name]) for name in NAMES}
    could = consistent(kinds, **parts, drawn=True)
    queries = LAKES.state_numbers(columns["query_states"][:, 0])
    for n in range(20):
        for length in (0, 1, 5, HORIZON):
            weights = could[n, :length].prod(axis=0)
            wanted = (weights[:, None] * law[:, queries[n]]).sum(axis=0)
            assert np.allclose(found.probabilities[n, length], wanted / wanted.sum(), atol=1e-6)


@pytest.mark.parametrize("group", ["transitions", "episodes"])
def test_the_posterior_is_calibrated(group: str):
    """A task that is given the chance p is the true one in a share p of all contexts."""
    arrays, posterior = block("train"), Posterior.of_family(LAKES, ["train"])
    assert posterior is not None and len(set(posterior.mdps.occupied.sum(axis=1))) > 1
    parts = {name: torch.from_numpy(arrays[f"{group}/{name}"][:, :6]) for name in NAMES}
    seen = as_numbers(LAKES, Context(**parts))
    left = tasks_left(posterior, seen, drawn=group == "transitions")
    chances = left / left.sum(axis=1, keepdims=True)
    true = arrays["tasks/parameters"] == LAKES.distinct["train"].T
    excess = (chances * (true - chances)).sum(axis=1)
    assert abs(excess.mean()) <= 4 * excess.std() / np.sqrt(len(excess))
    wrong = (true - chances).mean(axis=0)
    assert (np.abs(wrong) <= 4 * (true - chances).std(axis=0) / np.sqrt(len(true))).all()


@pytest.mark.parametrize("memory", ["episode", "history"])
def test_lakes_are_evaluated_beside_their_references(memory: str):
    arrays, n = block(), 60
    columns = {name: array[:n] for name, array in arrays.items()}
    torch.manual_seed(0)
    model = Transformer(ModelConfig(dropout=0.0), Inputs.of_family(LAKES)).eval()
    shown = {name: part for name, part in columns.items() if name.startswith("transitions/")}
    given = EvaluateConfig(tasks=n, online_episodes=4, headline_episodes=2, memory=memory)
    columns = shown | {"tasks/parameters": columns["tasks/parameters"]}
    trained = Trained(model, HORIZON)
    modes, again = (
        evaluate_tabular(LAKES, Evaluation(trained, given, np.random.default_rng(3)), columns)
        for _ in range(2)
    )
    assert (modes["online"].values == again["online"].values).all()
    best = optimal_returns(KINDS, HORIZON, KINDS.starts)[3]
    for mode, count in (("offline", 1), ("online", 4)):
        found = modes[mode]
        assert found.values.shape == (n, count) and set(np.unique(found.values)) <= {0, 1}
        learners = {name for name in found.references if "Bayes-optimal" in name}
        names = {"optimal", "random"} | learners
        assert set(found.references) == names and len(names) == 3
        assert np.allclose(found.references["optimal"], best)


def rows_of(seen: Transitions, task: int) -> set[tuple]:
    """The distinct transitions of a task."""
    return set(zip(*(part[task].tolist() for part in seen.parts.values()), strict=True))


def test_a_history_shows_every_outcome_and_its_ends():
    generator = np.random.default_rng(4)
    mdps = LAKES.mdps(np.zeros((3, 1), np.int16))
    memory = History(LAKES, 3, 60, generator)
    assert memory.context.ends is not None and memory.context.ends.shape == (3, 0)
    known: list[set] = [set() for _ in range(3)]
    for _ in range(2):
        episode = play_episode(LAKES, mdps, lambda s, _: generator.integers(0, 4, 3), generator)
        memory.add(episode)
        for n in range(3):
            known[n] |= set(
                zip(*(part[n].tolist() for part in episode.parts.values()), strict=True)
            )
    shown = as_numbers(LAKES, memory.context)
    for n in range(3):
        assert rows_of(shown, n) == known[n]


def test_a_token_says_whether_the_episode_ends():
    columns = {f"transitions/{name}": block()[f"transitions/{name}"][:5] for name in NAMES}
    context = Context.of_group(columns, "transitions")
    inputs = Inputs.of_family(LAKES)
    tokens = Transformer(ModelConfig(), inputs).context_tokens(context)
    assert tokens.shape == (5, HORIZON, inputs.width) and inputs.width == 2 + 4 + 2 + 1 + 1
    assert context.ends is not None and (tokens[..., -1] == context.ends).all()
    assert (tokens[..., -2] == 4 * context.rewards).all()
