import functools
import hashlib
import io
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from sad_hpc.dataset.reader import Arrays, read_columns
from sad_hpc.dataset.schema import Manifest
from sad_hpc.distill.contexts import sample_transitions
from sad_hpc.errors import CheckpointError
from sad_hpc.evaluate.acting import ActingRule, Selection, greedy, grid, sampled, settled
from sad_hpc.evaluate.agent_memory import LastEpisode
from sad_hpc.evaluate.baselines import optimal_returns, policy_returns
from sad_hpc.evaluate.episode import as_context, no_transitions, play_episode
from sad_hpc.evaluate.evaluation import Evaluation
from sad_hpc.evaluate.families import play_online
from sad_hpc.evaluate.offline import offline_returns
from sad_hpc.evaluate.online import online_returns
from sad_hpc.evaluate.policy import Trained, load_model, state_logits
from sad_hpc.evaluate.result import ModeResult
from sad_hpc.evaluate.result_file import read_result
from sad_hpc.evaluate.selection import CHUNKS, COMPARED_TASKS, PURPOSE
from sad_hpc.evaluate.stage import OF_EXACT, ChunkedEvaluation, evaluate
from sad_hpc.evaluate.tabular import evaluate_tabular
from sad_hpc.experiment.behavior_policy import policy_table
from sad_hpc.experiment.load import parse_experiment
from sad_hpc.experiment.methods import METHODS
from sad_hpc.experiment.sections import EvaluateConfig, ModelConfig
from sad_hpc.kernels.random import stream
from sad_hpc.launch.graph import pretrain_with_score
from sad_hpc.model.context import Context, Inputs, Queries
from sad_hpc.model.transformer import Transformer
from sad_hpc.model.weights import WEIGHTS, load_weights, save_weights
from sad_hpc.storage.json_files import write_json
from sad_hpc.storage.run import Run
from sad_hpc.tasks.base import make_family
from sad_hpc.tasks.darkroom import DarkroomConfig
from tests.conftest import with_data_of

FAMILY = make_family(DarkroomConfig(size=4, horizon=10, train_goals=10))
GOALS = FAMILY.parameters("test", 0, 12)
MDPS = FAMILY.mdps(GOALS)
N = len(GOALS)


@pytest.fixture(scope="module")
def model() -> Transformer:
    torch.manual_seed(0)
    # A large head makes answers differ from state to state.
    network = Transformer(ModelConfig(dropout=0.0), Inputs.of_family(FAMILY)).eval()
    torch.nn.init.normal_(network.head.weight, std=3.0)
    return network


def contexts() -> Context:
    table = policy_table("uniform", 5)
    drawn = sample_transitions(FAMILY, MDPS, np.arange(N), table, stream(0, 1, 0, "transitions"))
    return Context(**{name: torch.from_numpy(array) for name, array in drawn.parts.items()})


def offline(network: Transformer, context: Context, batch_size: int = 512) -> np.ndarray:
    logits = state_logits(network, FAMILY, context, batch_size)
    return offline_returns(FAMILY, MDPS, logits, np.random.default_rng(0))


def online(
    network: Transformer, generator: np.random.Generator, size: int = 10, batch_size: int = 512
) -> tuple[np.ndarray, np.ndarray]:
    """Three episodes, whose contexts are the last `size` transitions before them."""
    answer = functools.partial(state_logits, network, FAMILY, batch_size=batch_size)
    return online_returns(answer, LastEpisode(FAMILY, N, size), FAMILY, MDPS, 3, generator)


def nothing() -> Context:
    return as_context(FAMILY, no_transitions(FAMILY, N))


@torch.no_grad()
def ask_from_scratch(network: Transformer, context: Context, states: np.ndarray) -> np.ndarray:
    """(n, A): the one state of each task, alone behind its context."""
    queries = torch.from_numpy(FAMILY.coordinates[states])[:, None]
    whole = torch.full((len(states), 1, 1), context.actions.shape[1])
    return network(context, Queries(queries, whole))[:, 0].numpy()


@pytest.mark.parametrize("batch_size", [1, 5, 512])
@pytest.mark.parametrize("length", [0, 1, 10])
def test_one_pass_answers_as_if_each_state_were_asked_alone(
    model: Transformer, length: int, batch_size: int
):
    context = contexts().map(lambda part: part[:, :length])
    found = state_logits(model, FAMILY, context, batch_size)
    assert found.shape == (N, 16, 5)
    for state in range(16):
        expected = ask_from_scratch(model, context, np.full(N, state))
        assert np.allclose(found[:, state], expected, atol=1e-5 * np.abs(expected).max())


@pytest.mark.parametrize(("batch_size", "passes"), [(512, [12]), (12, [12]), (5, [5, 5, 2])])
def test_a_context_is_encoded_once_an_episode_and_no_batch_is_too_large(
    model: Transformer, batch_size: int, passes: list[int]
):
    sizes: list[int] = []
    hook = model.register_forward_pre_hook(lambda _, inputs: sizes.append(len(inputs[0].actions)))
    try:
        offline(model, contexts(), batch_size)
        online(model, np.random.default_rng(5), batch_size=batch_size)
    finally:
        hook.remove()
    assert sizes == passes * (1 + 3)


@pytest.mark.parametrize("batch_size", [5, 512])
def test_offline_return_is_that_of_a_plain_greedy_loop(model: Transformer, batch_size: int):
    context = contexts()
    states, returns = np.zeros(N, int), np.zeros(N)
    for _ in range(10):
        actions = ask_from_scratch(model, context, states).argmax(axis=1)
        returns += MDPS.rewards[np.arange(N), states, actions]
        states = MDPS.next_states[np.arange(N), states, actions]
    assert (offline(model, context, batch_size)[:, 0] == returns).all()


@pytest.mark.parametrize(("batch_size", "size"), [(5, 10), (512, 10), (512, 9)])
def test_online_episodes_are_those_of_a_plain_loop(model: Transformer, batch_size: int, size: int):
    """With the same uniform numbers: (T, n) of them an episode, and no others."""
    played, generator = np.random.default_rng(5), np.random.default_rng(5)
    returns, rewards = online(model, played, size, batch_size)
    context, tasks = nothing(), np.arange(N)
    for number in range(3):
        uniforms = generator.random((10, N))
        seen = (context.rewards.numpy() > 0).sum(axis=1)
        history, states = [], np.zeros(N, int)
        for step in range(10):
            logits = ask_from_scratch(model, context, states)
            actions = sampled(logits, uniforms[step])
            after = MDPS.next_states[tasks, states, actions]
            history.append((states, actions, MDPS.rewards[tasks, states, actions], after))
            states = after
        s, a, r, n = (np.stack(part, axis=1) for part in zip(*history, strict=True))
        context = Context(
            torch.from_numpy(FAMILY.coordinates[s]),
            torch.from_numpy(a.astype(np.uint8)),
            torch.from_numpy(r),
            torch.from_numpy(FAMILY.coordinates[n]),
        )
        context = context.map(lambda part: part[:, -size:])
        assert (returns[:, number] == r.sum(axis=1)).all()
        assert (rewards[:, number] == seen).all()
    assert played.random() == generator.random()


def evaluated(network: Transformer, shown: Context, longest: int = 10, **settings) -> dict:
    """A tabular evaluation of three online episodes."""
    given = EvaluateConfig(tasks=N, online_episodes=3, headline_episodes=2, **settings)
    columns = {f"{given.context}/{name}": part.numpy() for name, part in vars(shown).items()
               if part is not None} | {"tasks/parameters": GOALS}  # fmt: skip
    generator, reported = np.random.default_rng(5), []
    evaluation = Evaluation(Trained(network, longest), given, generator, reported.append)
    modes = evaluate_tabular(FAMILY, evaluation, columns)
    assert reported == sorted(reported) and reported[-1] == 1 + 3
    return modes


def test_a_tabular_evaluation_is_of_its_contexts_beside_exact_references(model: Transformer):
    context, uniform = contexts(), np.full(5, 0.2)
    modes = evaluated(model, context)
    given, collected = modes["offline"], modes["online"]
    expected = offline(model, context)
    assert (given.values == expected).all()
    assert (offline(model, nothing()) != expected).any()  # or nothing could be told apart
    assert (given.context_rewards[:, 0] == context.rewards.sum(dim=1).numpy()).all()
    returns, rewards = online(model, np.random.default_rng(5))
    assert (collected.values == returns).all() and (collected.context_rewards == rewards).all()
    best, random = optimal_returns(MDPS, 10, 0), policy_returns(MDPS, 10, 0, uniform)
    for mode in (given, collected):
        assert (mode.references["optimal"] == best[:, None]).all()
        assert (mode.references["random"] == random[:, None]).all()
        assert mode.references["random"].shape == mode.values.shape
    assert (given.measure.headline, collected.measure.headline) == (1, 2)
    assert given.steps.tolist() == [1] and collected.steps.tolist() == [1, 2, 3]


def test_a_model_is_shown_no_more_than_its_training_asked_after(model: Transformer):
    """AD and DIT: the last T - 1 transitions, offline and online."""
    context = contexts()
    modes = evaluated(model, context, longest=9)
    last = context.map(lambda part: part[:, 1:])
    assert (modes["offline"].values == offline(model, last)).all()
    assert (modes["offline"].values != offline(model, context)).any()
    assert (modes["offline"].context_rewards[:, 0] == last.rewards.sum(dim=1).numpy()).all()
    assert (modes["online"].values == online(model, np.random.default_rng(5), 9)[0]).all()
    lengths = {name: method.longest_context(10) for name, method in METHODS.items()}
    assert lengths == {"AD": 9, "DPT": 10, "DIT": 10, "DPT*": 10, "SAD": 10}


def test_rows_of_a_seed_have_the_same_ideal_whatever_they_are_shown(model: Transformer):
    plain, cut = evaluated(model, contexts()), evaluated(model, contexts(), longest=9)
    history = evaluated(model, contexts(), memory="history")
    episodes = evaluated(model, contexts(), context="episodes")
    for mode in ("offline", "online"):
        ideal = plain[mode].references["Bayes-optimal"]
        assert (ideal == cut[mode].references["Bayes-optimal"]).all()
    learners = [each["offline"].references["Bayes-optimal"] for each in (plain, history)]
    assert (learners[0] == learners[1]).all()
    assert set(history["online"].references) == {"optimal", "random", "Bayes-optimal, history"}
    assert set(episodes["offline"].references) == {"optimal", "random", "Bayes-optimal, episodes"}
    # The first two episodes know as much; the third one's draws are the same, too.
    remembers = history["online"].references["Bayes-optimal, history"]
    forgets = plain["online"].references
    assert (remembers[:, :2] == forgets["Bayes-optimal"][:, :2]).all()
    counted = plain["online"].reference_context_rewards["Bayes-optimal"]
    assert (counted[:, 1:] == forgets["Bayes-optimal"][:, :-1]).all() and not counted[:, 0].any()


def test_sampled_actions_have_the_softmax_distribution():
    logits = np.tile(np.array([[0.0, 1.0, -2.0, 3.0]], np.float32), (200_000, 1))
    actions = sampled(logits, np.random.default_rng(0).random(200_000))
    expected = np.exp(logits[0]) / np.exp(logits[0]).sum()
    assert np.allclose(np.bincount(actions) / 200_000, expected, atol=0.005)


def test_sampled_never_leaves_the_range_of_actions():
    logits = np.zeros((2, 3), np.float32)
    assert (sampled(logits, np.array([0.0, np.nextafter(1.0, 0.0)])) == [0, 2]).all()


def test_optimal_return_is_the_horizon_less_the_way():
    distance = GOALS.astype(int).sum(axis=1)
    # The step that enters the goal is already paid.
    assert (optimal_returns(MDPS, 10, 0) == 10 - np.maximum(distance - 1, 0)).all()


def test_playing_optimal_actions_reaches_the_optimal_return():
    optimal = FAMILY.optimal_actions(GOALS)
    episode = play_episode(
        FAMILY,
        MDPS,
        lambda states, _: optimal[np.arange(N), states].argmax(axis=1),
        np.random.default_rng(0),
    )
    assert (episode.rewards.sum(axis=1) == optimal_returns(MDPS, 10, 0)).all()


def test_random_return_agrees_with_simulation():
    expected = policy_returns(MDPS, 10, 0, np.full(5, 0.2))
    generator = np.random.default_rng(0)
    total = np.zeros(N)
    for _ in range(4000):
        act = lambda s, _: generator.integers(0, 5, N)  # noqa: E731
        episode = play_episode(FAMILY, MDPS, act, generator)
        total += episode.rewards.sum(axis=1)
    assert np.allclose(total / 4000, expected, atol=0.1)


@pytest.fixture
def trained(tiny_run: Run, tmp_path: Path) -> Run:
    """A run whose model has its first random weights."""
    run = with_data_of(tiny_run, Run(tiny_run.experiment, tmp_path))
    folder = run.checkpoint("SAD", 0)
    folder.prepare({})
    inputs = Inputs.of_family(make_family(run.experiment.task))
    torch.manual_seed(0)
    network = Transformer(run.experiment.model, inputs)
    signature = run.experiment.pretrain_signature("SAD", 0)
    checksum = save_weights(folder.path / WEIGHTS, network.state_dict(), signature)
    folder.complete(outputs=[WEIGHTS], checksum=checksum)
    return run


def test_an_element_writes_returns_contexts_and_references(trained: Run):
    evaluate(trained, "SAD", 0)
    family = make_family(trained.experiment.task)
    folder = trained.data().path / "test"
    columns = read_columns(
        folder, Manifest.load(folder), ["transitions/rewards", "tasks/parameters"], rows=20
    )
    with h5py.File(trained.evaluation("SAD", 0).path / "result.h5") as file:
        assert (file.attrs["method"], file.attrs["seed"]) == ("SAD", 0)
        assert file["offline/values"].shape == (20, 1)
        assert file["online/values"].shape == (20, 3)
        assert file["online"].attrs["headline"] == 2
        seen = file["offline/context_rewards"][:, 0]
        assert (seen == (columns["transitions/rewards"] > 0).sum(axis=1)).all()
        assert (file["online/context_rewards"][:, 0] == 0).all()
        best = file["references/optimal/offline"][...]
        assert (file["offline/values"][...] <= best).all()
        expected = optimal_returns(family.mdps(columns["tasks/parameters"]), 9, 0)
        assert (best[:, 0] == expected).all()


def test_equal_seeds_give_equal_results_and_a_finished_element_stays(trained: Run):
    path = trained.evaluation("SAD", 0).path
    evaluate(trained, "SAD", 0)
    with h5py.File(path / "result.h5") as file:
        first = file["online/values"][...]
    before = (path / "result.h5").stat().st_mtime_ns
    evaluate(trained, "SAD", 0)
    assert (path / "result.h5").stat().st_mtime_ns == before
    shutil.rmtree(path)
    evaluate(trained, "SAD", 0)
    with h5py.File(path / "result.h5") as file:
        assert (file["online/values"][...] == first).all()


def test_the_size_of_chunks_changes_nothing_offline(trained: Run):
    settings = trained.experiment.evaluate.model_copy(update={"chunk_tasks": 20})
    other = Run(trained.experiment.model_copy(update={"evaluate": settings}), trained.runs)
    found = []
    for run in (trained, other):
        evaluate(run, "SAD", 0)
        found.append(read_result(run.evaluation("SAD", 0).path / "result.h5").modes["offline"])
    assert (found[0].values == found[1].values).all()
    assert (found[0].context_rewards == found[1].context_rewards).all()
    for name, values in found[0].references.items():
        assert (values == found[1].references[name]).all()


def test_rows_that_are_shown_other_contexts_share_the_trained_model(trained: Run):
    settings = {
        "SAD, memory": {"evaluate.memory": "history"},
        "SAD, episodes": {"evaluate.context": "episodes"},
    }
    others = [{"name": name, "method": "SAD", "set": each} for name, each in settings.items()]
    values = trained.experiment.model_dump(mode="json") | {"rows": ["SAD", *others]}
    run = Run(parse_experiment(values, "test"), trained.runs)
    found = {}
    for row in ("SAD", *settings):
        own, method = run.of_element(row, 0)
        assert own.checkpoint(method, 0).path == trained.checkpoint("SAD", 0).path
        evaluate(own, method, 0)
        found[row] = read_result(own.evaluation(method, 0).path / "result.h5").modes
    folder = trained.data().path / "test"
    rewards = read_columns(folder, Manifest.load(folder), ["episodes/rewards"], 20)
    counted = found["SAD, episodes"]["offline"].context_rewards[:, 0]
    assert (counted == rewards["episodes/rewards"].sum(axis=1)).all()
    usual, memory = found["SAD"]["offline"], found["SAD, memory"]["offline"]
    assert (memory.values == usual.values).all()
    assert (counted != usual.context_rewards[:, 0]).any()


def test_a_temperature_divides_the_logits_online_and_leaves_offline_play(trained: Run):
    found = modes_beside(trained, {"evaluate.temperature": 0.25})
    assert (found[0]["offline"].values == found[1]["offline"].values).all()
    assert (found[0]["online"].values != found[1]["online"].values).any()


def assert_scores_on(parameters: np.ndarray, own: Run, selection: Selection) -> None:
    """The scores of three rules are what they return in the tasks."""
    family, settings = make_family(own.experiment.task), own.experiment.evaluate
    model = Trained(load_model(own, "SAD", 0), own.experiment.task.horizon)
    for number in (0, 5, selection.chosen):
        drawn = np.random.default_rng([settings.seed, 0, *PURPOSE])
        evaluation = Evaluation(model, settings, drawn)
        played, _ = play_online(family, evaluation, parameters, selection.rules[number])
        headline = played[:, -settings.headline_episodes :].mean()
        assert selection.scores[number] == pytest.approx(headline)


def test_models_rules_and_exact_learners_have_random_numbers_of_their_own():
    seeds, chunks = range(5), range(5)
    words = [[0, seed, chunk] for seed in seeds for chunk in chunks]
    words += [[0, seed, *PURPOSE] for seed in seeds] + [[0, chunk, *OF_EXACT] for chunk in chunks]
    first = {np.random.default_rng(each).random() for each in words}
    assert len(first) == len(words)


def test_auto_compares_rules_on_the_last_training_tasks(trained: Run):
    rows = [{"name": "SAD, auto", "method": "SAD", "set": {"evaluate.acting": "auto"}}]
    values = trained.experiment.model_dump(mode="json") | {"rows": rows}
    own, _ = Run(parse_experiment(values, "test"), trained.runs).of_element("SAD, auto", 0)
    evaluate(own, "SAD", 0)
    auto = read_result(own.evaluation("SAD", 0).path / "result.h5")
    selection = auto.selection
    assert selection is not None and selection.errors is not None and len(selection.rules) == 17
    lost = max(selection.scores) - selection.scores[selection.chosen]
    assert 0 <= lost <= selection.errors[selection.chosen] + 1e-9
    assert_scores_on(last_training_tasks(trained), own, selection)


def last_training_tasks(run: Run) -> NDArray[np.float64]:
    folder = run.data().path / "train"
    everyone = read_columns(folder, Manifest.load(folder), ["tasks/parameters"])
    return everyone["tasks/parameters"][-COMPARED_TASKS:]


def test_auto_chooses_on_validation_tasks_if_there_are_any(trained: Run):
    changes = {"pretrain.validation_tasks": 0.5, "evaluate.acting": "auto"}
    rows = [{"name": "SAD, unseen", "method": "SAD", "set": changes}]
    values = trained.experiment.model_dump(mode="json") | {"rows": rows}
    own, _ = Run(parse_experiment(values, "test"), trained.runs).of_element("SAD, unseen", 0)
    pretrain_with_score(own, "SAD", 0)
    evaluate(own, "SAD", 0)
    selection = read_result(own.evaluation("SAD", 0).path / "result.h5").selection
    assert selection is not None
    tasks = make_family(own.experiment.task).validation_tasks(0.5)
    assert len(tasks) == 3
    parameters = np.concatenate([tasks] * 34)[:COMPARED_TASKS]
    assert_scores_on(parameters, own, selection)


def test_a_choice_of_an_earlier_start_is_kept_and_the_papers_rule_stays_beside_it(trained: Run):
    """`online` is what the chosen rule gives where a config names it."""
    rows = [{"name": "SAD, auto", "method": "SAD", "set": {"evaluate.acting": "auto"}}]
    values = trained.experiment.model_dump(mode="json") | {"rows": rows}
    own, _ = Run(parse_experiment(values, "test"), trained.runs).of_element("SAD, auto", 0)
    chunks = own.evaluation("SAD", 0).path / CHUNKS
    chunks.mkdir(parents=True, exist_ok=True)
    rules = grid(sparse_reward=True, vectors=False)
    cold = rules.index(ActingRule(0.25))
    found = np.zeros((10, len(last_training_tasks(own))))
    found[cold] = 1000
    write_json(chunks / "acting.json", found.tolist())
    evaluate(own, "SAD", 0)
    auto = read_result(own.evaluation("SAD", 0).path / "result.h5")
    assert auto.selection is not None and auto.selection.rule == ActingRule(0.25)
    kept, found = np.split(np.array(auto.selection.scores), [10])
    assert kept.tolist().count(0) == 9 and len(found) == 7 and found.max() < 1000
    usual, given = modes_beside(trained, {"evaluate.temperature": 0.25})
    assert list(auto.modes) == ["offline", "online", "sampled"]
    assert (auto.modes["online"].values == given["online"].values).all()
    assert (auto.modes["offline"].values == usual["offline"].values).all()
    assert (auto.modes["sampled"].values != auto.modes["online"].values).any()
    assert auto.modes["sampled"].references.keys() == usual["online"].references.keys()


def modes_beside(trained: Run, changes: dict[str, Any]) -> list[dict[str, ModeResult]]:
    """Return the results of SAD's weights by the unchanged evaluation, and by one with changes."""
    rows = ["SAD", {"name": "SAD, changed", "method": "SAD", "set": changes}]
    values = trained.experiment.model_dump(mode="json") | {"rows": rows}
    run = Run(parse_experiment(values, "test"), trained.runs)
    found = []
    for name in ("SAD", "SAD, changed"):
        own, method = run.of_element(name, 0)
        assert own.checkpoint(method, 0).path == trained.checkpoint("SAD", 0).path
        evaluate(own, method, 0)
        found.append(read_result(own.evaluation(method, 0).path / "result.h5").modes)
    return found


def test_what_is_known_is_not_drawn():
    generator = np.random.default_rng(0)
    logits = generator.normal(size=(50, 3, 5)).astype(np.float32)
    known = generator.random(50) < 0.5
    found = settled(logits, known)
    assert (found[~known] == logits[~known]).all()
    for uniform in (0.0, 0.3, 0.99999):
        drawn = sampled(found.reshape(-1, 5), np.full(150, uniform)).reshape(50, 3)
        assert (drawn[known] == greedy(logits)[known]).all()
        assert (drawn[~known] != greedy(logits)[~known]).any()


def test_until_a_first_reward_actions_are_drawn_as_ever(trained: Run):
    usual, changed = modes_beside(trained, {"evaluate.greedy_after_reward": True})
    assert (usual["offline"].values == changed["offline"].values).all()
    returns, others = usual["online"].values, changed["online"].values
    # An episode is the same if no context of its task has shown a reward so far.
    same = (usual["online"].context_rewards > 0).cumsum(axis=1) == 0
    assert (returns[same] == others[same]).all()
    assert same[:, 1:].any() and (returns != others).any()


def columns_of_test_tasks(run: Run) -> Arrays:
    folder = run.data().path / "test"
    names = [f"transitions/{each}" for each in ("states", "actions", "rewards", "next_states")]
    return read_columns(folder, Manifest.load(folder), names, 20)


def flip_a_bit_in_the_values(content: bytes) -> bytes:
    with h5py.File(io.BytesIO(content)) as file:
        place = file["online/values"].id.get_chunk_info(0).byte_offset
    return content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]


@pytest.mark.parametrize(
    "damage", [lambda c: c, lambda c: c[:-100], flip_a_bit_in_the_values, lambda c: b""]
)
def test_an_interrupted_element_plays_what_is_missing_or_damaged(
    trained: Run, monkeypatch: pytest.MonkeyPatch, damage: Callable[[bytes], bytes]
):
    """Interrupted in the last of three chunks; the second is found damaged, or not."""
    folder = trained.evaluation("SAD", 0).path
    evaluate(trained, "SAD", 0)
    expected = (folder / "result.h5").read_bytes()
    assert not (folder / "chunks").exists()
    shutil.rmtree(folder)
    evaluate_chunk, played = ChunkedEvaluation._evaluate_chunk, []

    def interrupted(self: ChunkedEvaluation, number: int, *others) -> dict:
        played.append(number)
        if played == [0, 1, 2]:
            raise KeyboardInterrupt
        return evaluate_chunk(self, number, *others)

    monkeypatch.setattr(ChunkedEvaluation, "_evaluate_chunk", interrupted)
    with pytest.raises(KeyboardInterrupt):
        evaluate(trained, "SAD", 0)
    second = folder / "chunks/00001.h5"
    content = second.read_bytes()
    second.write_bytes(damage(content))
    evaluate(trained, "SAD", 0)
    again = [2] if damage(content) == content else [1, 2]
    assert played == [0, 1, 2, *again]
    assert (folder / "result.h5").read_bytes() == expected


def test_an_untrained_model_is_named_with_the_way_out(tiny_run: Run):
    with pytest.raises(CheckpointError, match=r"DPT seed 1 is not trained.*sad-hpc pretrain"):
        evaluate(tiny_run, "DPT", 1)


@pytest.mark.parametrize(
    "change", [lambda c: c[:-1] + bytes([c[-1] ^ 1]), lambda c: b"x" * len(c), lambda c: c[::-1]]
)
def test_damaged_weights_are_refused(trained: Run, change):
    path = trained.checkpoint("SAD", 0).path / WEIGHTS
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(CheckpointError, match="damaged"):
        load_model(trained, "SAD", 0)


@pytest.mark.parametrize("threads", [1, 2])
def test_a_model_answers_in_one_thread_unless_the_user_asks_for_more(
    threads: int, trained: Run, monkeypatch: pytest.MonkeyPatch
):
    before = torch.get_num_threads()
    monkeypatch.delenv("OMP_NUM_THREADS")
    if threads > 1:
        monkeypatch.setenv("OMP_NUM_THREADS", str(threads))
    try:
        torch.set_num_threads(2)
        load_model(trained, "SAD", 0)
        assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)


def test_missing_or_truncated_weights_count_as_not_trained(trained: Run):
    path = trained.checkpoint("SAD", 0).path / WEIGHTS
    path.write_bytes(b"")
    with pytest.raises(CheckpointError, match="not trained"):
        load_model(trained, "SAD", 0)
    path.unlink()
    with pytest.raises(CheckpointError, match="not trained"):
        load_model(trained, "SAD", 0)


def test_weights_of_another_method_are_refused(trained: Run):
    network = load_model(trained, "SAD", 0)
    path = trained.checkpoint("SAD", 0).path / WEIGHTS
    other = trained.experiment.pretrain_signature("DPT", 0)
    trained.checkpoint("SAD", 0).complete(
        outputs=[WEIGHTS], checksum=save_weights(path, network.state_dict(), other)
    )
    with pytest.raises(CheckpointError, match="of another model"):
        load_model(trained, "SAD", 0)


def test_a_lost_result_is_made_again(trained: Run):
    evaluate(trained, "SAD", 0)
    path = trained.evaluation("SAD", 0).path / "result.h5"
    path.unlink()
    assert trained.evaluation("SAD", 0).done is None
    evaluate(trained, "SAD", 0)
    assert path.exists()


def test_pickled_code_in_weights_is_not_run(trained: Run, tmp_path: Path):
    class Evil:
        def __reduce__(self):
            return (Path.touch, (tmp_path / "executed",))

    path = trained.checkpoint("SAD", 0).path / WEIGHTS
    torch.save({"signature": "x", "state": Evil()}, path)
    checksum = hashlib.blake2b(path.read_bytes(), digest_size=32).hexdigest()
    with pytest.raises(CheckpointError, match="damaged"):
        load_weights(path, torch.nn.Linear(1, 1), "x", checksum)
    assert not (tmp_path / "executed").exists()
