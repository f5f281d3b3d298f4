"""Shared models: a loaded policy answers like the exported model, or is refused."""

import json
import math
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save

import sad_hpc
from sad_hpc.cli import main
from sad_hpc.distill import make_block
from sad_hpc.errors import UserError
from sad_hpc.evaluate.policy import answers, load_model
from sad_hpc.experiment.load import load_experiment, parse_experiment
from sad_hpc.model.context import Context, Inputs
from sad_hpc.model.transformer import Transformer
from sad_hpc.model.weights import WEIGHTS, save_weights
from sad_hpc.policies.policy import PARTS
from sad_hpc.storage.files import checksum
from sad_hpc.storage.run import Run
from sad_hpc.tasks.base import make_family

PENDULUM = {
    "family": "gymnasium", "env": "Pendulum-v1", "horizon": 12,
    "attributes": {"g": {"uniform": [5.0, 15.0]}},
}  # fmt: skip
TASKS: dict[str, dict[str, Any]] = {
    "darkroom": {"family": "darkroom", "size": 3, "horizon": 9, "train_goals": 6},
    "bandit": {"family": "gaussian_bandit", "horizon": 12},
    "pendulum": PENDULUM,
    "lock": {
        "family": "gymnasium",
        "env": "tests.tasks.own_environments:Lock-v0",
        "horizon": 10,
        "vary": {"digit": {"choice": [1, 2, 3]}},
    },
    "pictures": {
        "family": "gymnasium",
        "env": "tests.tasks.own_environments:Pictures-v0",
        "horizon": 6,
        "attributes": {"noise": {"uniform": [0.5, 2]}},
    },
}
DATA = {"tasks": 200, "block_tasks": 4, "trust_horizon": 3, "return_threshold": None}


@pytest.fixture(params=sorted(TASKS))
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Run:
    """One whose only model has random weights."""
    data = (
        DATA if request.param != "bandit" else {"tasks": 200, "block_tasks": 4, "trust_horizon": 4}
    )
    return with_weights(
        {"name": request.param, "task": TASKS[request.param], "data": data}, tmp_path
    )


def with_weights(experiment: dict[str, Any], folder: Path) -> Run:
    """A run with the random weights of SAD, seed 0."""
    given: dict[str, Any] = {
        "rows": ["SAD"],
        "seeds": [0],
        "pretrain": {"epochs": 1, "holdout_tasks": 64},
    }
    given["evaluate"] = {"tasks": 4, "online_episodes": 2, "headline_episodes": 1}
    run = Run(parse_experiment(experiment | given, "test"), folder / "runs")
    run.prepare(["test"])
    checkpoint = run.checkpoint("SAD", 0)
    checkpoint.prepare({})
    torch.manual_seed(0)
    model = Transformer(run.experiment.model, Inputs.of_family(make_family(run.experiment.task)))
    torch.nn.init.normal_(model.head.weight, std=0.1)
    signature = run.experiment.pretrain_signature("SAD", 0)
    checksum = save_weights(checkpoint.path / WEIGHTS, model.state_dict(), signature)
    checkpoint.complete(outputs=[WEIGHTS], checksum=checksum)
    return run


def export(run: Run, folder: Path, row: str = "SAD") -> int:
    """Exit code of `sad-hpc export`."""
    arguments = ["--row", row, "--seed", "0", "--weights", str(folder)]
    return main(["export", str(run.path), *arguments])


def test_a_shared_policy_answers_as_the_run_does(run: Run, tmp_path: Path) -> None:
    assert export(run, tmp_path / "policy") == 0
    policy = sad_hpc.load_policy(tmp_path / "policy")
    arrays = make_block(make_family(run.experiment.task), run.experiment.data, "train", 0).arrays
    context = {
        k.removeprefix("transitions/"): v for k, v in arrays.items() if k.startswith("transitions/")
    }
    state = context["states"][0, 0]
    for length in (0, 1, len(context["rewards"][0])):
        given = {name: part[0, :length] for name, part in context.items()}
        shown = Context(**{name: torch.from_numpy(part[None]) for name, part in given.items()})
        model = load_model(run, "SAD", 0)
        vector = policy.act(given, state) if run.experiment.family.components else None
        asked = np.array([[length]]), 1, None if vector is None else vector[None]
        expected = answers(model, shown, state[None], *asked)[0]
        found = policy.logits(given, state)
        np.testing.assert_array_equal(found.reshape(expected.shape), expected)
        np.testing.assert_allclose(policy.probabilities(given, state).sum(axis=-1), 1)
    unended = {name: part for name, part in given.items() if name != "ends"}
    zeros = {**given, "ends": np.zeros(length)} if "ends" in given else given
    np.testing.assert_array_equal(policy.logits(unended, state), policy.logits(zeros, state))
    drawn = [policy.act(given, state, np.random.default_rng(seed)) for seed in range(50)]
    assert len({np.asarray(action).tobytes() for action in drawn}) > 1
    assert np.shape(policy.act(None, state)) == np.shape(context["actions"][0, 0])


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """A shared policy of Darkroom."""
    run = with_weights({"name": "rooms", "task": TASKS["darkroom"], "data": DATA}, tmp_path)
    assert export(run, tmp_path / "policy") == 0
    return tmp_path / "policy"


def test_the_folder_says_what_it_is(shared: Path) -> None:
    card = json.loads((shared / "config.json").read_text())
    assert (card["row"], card["seed"], card["task"]["size"]) == ("SAD", 0, 3)
    assert (shared / "README.md").read_text().startswith("---\nlibrary_name: sad_hpc\nlicense: mit")
    assert str(shared.parent) not in (shared / "config.json").read_text()


@pytest.mark.parametrize("file", ["model.safetensors", "config.json"])
def test_what_is_damaged_is_refused(shared: Path, file: str) -> None:
    content = (shared / file).read_bytes()
    (shared / file).write_bytes(content[:-8] + b"12345678")
    with pytest.raises(UserError, match=r"damaged|not hold a policy|cannot be loaded"):
        sad_hpc.load_policy(shared)
    (shared / file).unlink()
    with pytest.raises(UserError, match=r"not hold a policy|cannot be loaded"):
        sad_hpc.load_policy(shared)


@pytest.mark.parametrize(
    ("context", "reason"),
    [
        ({"states": [[0, 0]]}, "a context has states, actions, rewards, next_states"),
        (dict(states=[[0, 0]], actions=[5], rewards=[0], next_states=[[0, 0]]), "from 0 to 4"),
        (dict(states=[[0]], actions=[1], rewards=[0], next_states=[[0, 0]]), r"shape \(1, 1\)"),
        (dict(states=[[0, 0]] * 2, actions=[1] * 2, rewards=[0], next_states=[[0, 0]] * 2),
         r"states has the shape \(2, 2\).*beside 1 rewards"),
        (dict(states=[[0, 0]], actions=[1], rewards=[np.nan], next_states=[[0, 0]]),
         "rewards has a number that is not finite"),
    ],
)  # fmt: skip
def test_a_wrong_context_is_named(shared: Path, context: dict[str, Any], reason: str) -> None:
    with pytest.raises(UserError, match=reason):
        sad_hpc.load_policy(shared).act(context, [0, 0])


def test_a_trial_hides_no_trained_model(tmp_path: Path, capsys: Any) -> None:
    """A later launch stores its own config in the run's folder; the file of the first one finds
    its models."""
    mapping = {"name": "darkroom", "task": TASKS["darkroom"], "data": DATA}
    run = with_weights(mapping, tmp_path)
    config = tmp_path / "darkroom.yaml"
    config.write_text(json.dumps(run.experiment.model_dump(mode="json", exclude={"pretrained"})))
    trial = load_experiment(config, ["pretrain.epochs=2", "rows=[SAD, DPT]"])
    Run(trial, run.runs).prepare(["trial"])
    options = ["--row", "SAD", "--seed", "0", "--weights"]
    assert main(["export", str(run.path), *options, str(tmp_path / "lost")]) == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and "SAD seed 0 is not trained with these settings" in error
    assert "trained models: none; trained with other settings: sad-seed0-" in error
    assert "CONFIG key=value" in error
    runs = ["--runs", str(run.runs)]
    assert main(["export", str(config), *options, str(tmp_path / "found"), *runs]) == 0
    assert (tmp_path / "found" / WEIGHTS).exists() or list((tmp_path / "found").iterdir())
    assert main(["export", str(config), *options, str(tmp_path / "other"), *runs, "seeds=[0, 1]",
                 "pretrain.epochs=2"]) == 1  # fmt: skip
    assert "not trained with these settings" in capsys.readouterr().err
    options[3] = "1"
    assert main(["export", str(config), *options, str(tmp_path / "x"), *runs, "seeds=[0,1]"]) == 1
    assert "trained models: SAD seed 0." in capsys.readouterr().err


def test_status_takes_a_config_or_a_folder(tmp_path: Path, capsys: Any) -> None:
    mapping = {"name": "darkroom", "task": TASKS["darkroom"], "data": DATA}
    run = with_weights(mapping, tmp_path)
    config = tmp_path / "darkroom.yaml"
    config.write_text(json.dumps(run.experiment.model_dump(mode="json", exclude={"pretrained"})))
    main(["status", str(run.path)])
    by_folder = capsys.readouterr().out
    main(["status", str(config), "--runs", str(run.runs)])
    assert capsys.readouterr().out == by_folder and "pretrain sad-seed0" in by_folder
    main(["status", str(config), "--runs", str(run.runs), "seeds=[0, 1]"])
    assert "pretrain sad-seed1" in capsys.readouterr().out
    assert main(["status", str(run.path), "seeds=[0, 1]"]) == 1
    assert "settings need a config file" in capsys.readouterr().err


WRONG_CARDS: dict[str, dict[str, Any]] = {
    "unknown 'mamba'; valid: .*gpt2.*install the package of its model": {
        "model": {"architecture": "mamba"}
    },
    "inputs.n_actions": {"inputs": {"n_actions": 0}},
    "the model of config.json has": {"inputs": {"n_actions": 10**9}},
    "model of config.json has": {"model": {"embedding": 100_000}},
    "inputs.horizon": {"inputs": {"horizon": 10**30}},
    "inputs.state_scale.0": {"inputs": {"state_scale": [math.nan, 1.0]}},
    "inputs.state_scale.1": {"inputs": {"state_scale": [1.0, 0.0]}},
    "inputs.state_center.0": {"inputs": {"state_center": [math.inf, 1.0]}},
    "differ in length": {"inputs": {"state_scale": [1.0]}},
    "inputs.reward_scale": {"inputs": {"reward_scale": -math.inf}},
    "inputs.components": {"inputs": {"components": "2"}},
    "longest_context": {"longest_context": 0},
    "inputs.image_shape": {"inputs": {"image_shape": [12, 13, 3], "state_center": []}},
    "or images of image_shape": {"inputs": {"image_shape": [13, 13, 3]}},
    "longest_context is above inputs.horizon": {"longest_context": 10},
    "model.layers": {"model": {"layers": True}},
    "weights_checksum": {"weights_checksum": None},
    "library_name": {"library_name": "other"},
}


def merged(card: dict[str, Any], change: dict[str, Any]) -> dict[str, Any]:
    """A card with other values in some of its sections."""
    return card | {
        key: merged(card[key], value) if isinstance(value, dict) else value
        for key, value in change.items()
    }


@pytest.mark.parametrize("words", sorted(WRONG_CARDS))
def test_a_wrong_card_is_refused_before_memory_is_taken(shared: Path, words: str) -> None:
    card = json.loads((shared / "config.json").read_text())
    (shared / "config.json").write_text(json.dumps(merged(card, WRONG_CARDS[words])))
    with pytest.raises(UserError, match=words) as raised:
        sad_hpc.load_policy(shared)
    assert "\n" not in str(raised.value) and len(str(raised.value)) < 500


def with_checksum(folder: Path, weights: bytes) -> None:
    """Gives a policy other weights, and a card that says so."""
    (folder / "model.safetensors").write_bytes(weights)
    card = json.loads((folder / "config.json").read_text())
    card["weights_checksum"] = checksum(weights)
    (folder / "config.json").write_text(json.dumps(card))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda weight: weight.index_fill(0, torch.tensor(0), math.nan), "not finite"),
        (lambda weight: weight.double(), "float64"),
        (lambda weight: weight[None].clone(), "but the model of config.json has"),
    ],
)
def test_wrong_weights_are_refused(shared: Path, change: Any, words: str) -> None:
    weights = load_file(shared / "model.safetensors")
    weights["head.bias"] = change(weights["head.bias"])
    with_checksum(shared, save(weights))
    with pytest.raises(UserError, match=words):
        sad_hpc.load_policy(shared)


@pytest.mark.parametrize(
    "content", [b"", b"[" * 10**5, b"\xff", b"7", b"[]", b'{"library_name": NaN}', b'{"a":' * 2000]
)
def test_a_card_that_is_no_card_is_refused(shared: Path, content: bytes) -> None:
    (shared / "config.json").write_bytes(content)
    with pytest.raises(UserError, match="does not hold a policy") as raised:
        sad_hpc.load_policy(shared)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_a_pipe_is_not_waited_for(shared: Path, name: str) -> None:
    (shared / name).unlink()
    os.mkfifo(shared / name)
    with pytest.raises(UserError, match="not a regular file"):
        sad_hpc.load_policy(shared)


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A shared policy of Darkroom in memory."""
    folder = tmp_path_factory.mktemp("loaded")
    experiment = {"name": "rooms", "task": TASKS["darkroom"], "data": DATA}
    assert export(with_weights(experiment, folder), folder / "policy") == 0
    return sad_hpc.load_policy(folder / "policy")


NUMBERS = st.integers(-3, 300) | st.floats() | st.booleans()
VALUES: st.SearchStrategy[Any] = st.recursive(
    NUMBERS | st.none() | st.text(max_size=3) | st.just(10**400) | st.just(1j) | st.builds(object),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner),
    max_leaves=6,
)
PART = VALUES | st.lists(st.lists(st.integers(0, 2), min_size=2, max_size=2), max_size=3)


@settings(max_examples=200, derandomize=True, deadline=None)
@given(
    context=VALUES | st.fixed_dictionaries({name: PART for name in PARTS}),
    state=VALUES | st.just([0, 1]),
)
def test_any_context_is_answered_or_refused_in_a_line(
    loaded: Any, context: Any, state: Any
) -> None:
    try:
        assert loaded.act(context, state) in range(5)
    except UserError as error:
        assert "\n" not in str(error)


def test_export_names_what_is_in_the_way(
    shared: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Run.of_folder(tmp_path / "runs" / "rooms")
    assert export(run, shared) == 1
    assert "already exists" in capsys.readouterr().err
    assert export(run, tmp_path / "other", "AD") == 1
    assert "it has SAD" in capsys.readouterr().err
