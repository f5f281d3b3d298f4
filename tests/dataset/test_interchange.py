"""Minari datasets: a reader gets every transition of the split and its task."""

import sys
from pathlib import Path
from typing import Any

import minari
import numpy as np
import pytest
from gymnasium import spaces

from sad_hpc.cli import main
from sad_hpc.collect.stage import collect
from sad_hpc.dataset import interchange
from sad_hpc.dataset.interchange import cut_into_episodes, observation_space
from sad_hpc.dataset.reader import read_columns
from sad_hpc.dataset.schema import Manifest
from sad_hpc.errors import UserError
from sad_hpc.experiment.load import load_experiment, parse_experiment
from sad_hpc.storage.run import Run
from sad_hpc.tasks.base import make_family
from tests.conftest import ROOT

ROOM = {"family": "darkroom", "size": 3, "horizon": 9, "train_goals": 6}
TASKS: dict[str, dict[str, Any]] = {
    "darkroom": ROOM,
    "histories": ROOM,
    "bandit": {"family": "bernoulli_bandit", "horizon": 12},
    "pendulum": {
        "family": "gymnasium", "env": "Pendulum-v1", "horizon": 12,
        "attributes": {"g": {"uniform": [5.0, 15.0]}},
    },
    "cartpole": {
        "family": "gymnasium", "env": "CartPole-v1", "horizon": 40,
        "attributes": {"gravity": {"uniform": [5.0, 15.0]}},
    },
    "pictures": {
        "family": "gymnasium", "env": "tests.tasks.own_environments:Pictures-v0", "horizon": 6,
        "attributes": {"noise": {"uniform": [0.5, 2]}},
    },
    "lake": {
        "family": "gymnasium_table", "env": "FrozenLake-v1", "states": [3, 3], "horizon": 15,
        "rewards": "sparse",
        "vary": {"desc": {"choice": [["SFF", "FHF", "FFG"], ["SHF", "FFF", "FFG"]]}},
    },
    "keypad": {
        "family": "gymnasium_table", "env": "tests.tasks.own_environments:Keypad-v0",
        "states": [2], "horizon": 15, "rewards": "sparse", "make": {"buttons": 300},
        "vary": {"code": {"choice": [280, 290]}},
    },
    "ring": {
        "family": "gymnasium_table", "env": "tests.tasks.own_environments:Keypad-v0",
        "states": [300], "horizon": 15, "rewards": "sparse", "make": {"buttons": 2, "doors": 300},
        "vary": {"code": {"choice": [0, 1]}},
    },
}  # fmt: skip
GROUPS = dict.fromkeys(("bandit", "pendulum", "cartpole", "pictures"), "transitions")
SPACES = {
    "darkroom": (spaces.Box(0, 2, (2,), np.uint8), spaces.Discrete(5)),
    "histories": (spaces.Box(0, 2, (2,), np.uint8), spaces.Discrete(5)),
    "bandit": (spaces.Box(0, 0, (1,), np.uint8), spaces.Discrete(5)),
    "pendulum": (spaces.Box(-np.inf, np.inf, (3,)), spaces.Box(-1, 1, (1,))),
    "cartpole": (spaces.Box(-np.inf, np.inf, (4,)), spaces.Discrete(2)),
    "pictures": (spaces.Box(0, 255, (16, 22, 3), np.uint8), spaces.Discrete(3)),
    "lake": (spaces.Box(0, 2, (2,), np.uint8), spaces.Discrete(4)),
    "keypad": (spaces.Box(0, 1, (1,), np.uint8), spaces.Discrete(300)),
    "ring": (spaces.Box(0, 299, (1,), np.int16), spaces.Discrete(2)),
}


def run_of(name: str, folder: Path, **more: Any) -> Run:
    """A run that has nothing yet, with small datasets of several blocks."""
    data: dict[str, Any] = {"tasks": 20, "block_tasks": 6, "trust_horizon": 3}
    data |= {"return_threshold": None, "q_learning_steps": 30 if name == "histories" else 0}
    experiment: dict[str, Any] = {"name": f"{name}.1", "task": TASKS[name], "data": data}
    experiment |= {"rows": ["SAD"], "evaluate": {"tasks": 2}} | more
    few = {"epochs": 1, "holdout_tasks": 4, "batch_size": 4}
    return Run(parse_experiment(experiment | {"pretrain": few}, "test"), folder / "runs")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's home, in which nothing may be written."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv(interchange.ROOT, raising=False)
    return tmp_path / "home"


@pytest.mark.parametrize("name", sorted(TASKS))
def test_a_loaded_dataset_has_every_transition(
    name: str, tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, group = run_of(name, tmp_path), GROUPS.get(name, "episodes")
    collect(run)
    assert main(["export", str(run.path), "--minari", str(tmp_path / "shared")]) == 0
    assert not home.exists()
    monkeypatch.setenv(interchange.ROOT, str(tmp_path / "shared"))
    dataset = minari.load_dataset(f"{name}_1-train-v0")

    manifest = Manifest.load(run.data().path / "train")
    parts = ["states", "actions", "rewards", "next_states"]
    parts += ["ends"] if make_family(run.experiment.task).has_ends else []
    names = [*(f"{group}/{part}" for part in parts), "tasks/index", "tasks/parameters"]
    columns = read_columns(run.data().path / "train", manifest, names)
    context = {part: columns[f"{group}/{part}"] for part in parts}
    assert (dataset.observation_space, dataset.action_space) == SPACES[name]
    assert dataset.total_steps == context["rewards"].size
    episodes = list(dataset.iterate_episodes())
    for episode in episodes:
        assert all(each in dataset.observation_space for each in episode.observations)
        assert all(each in dataset.action_space for each in episode.actions)
        stops = episode.terminations | episode.truncations
        assert stops[-1] and not stops[:-1].any()
        assert not (episode.terminations & episode.truncations).any()
    found = {
        "states": [episode.observations[:-1] for episode in episodes],
        "next_states": [episode.observations[1:] for episode in episodes],
        "actions": [episode.actions for episode in episodes],
        "rewards": [episode.rewards for episode in episodes],
        "ends": [episode.terminations for episode in episodes],
    }
    for part in parts:
        expected = context[part].reshape(-1, *context[part].shape[2:])
        np.testing.assert_array_equal(np.concatenate(found[part]), expected)
        if part not in ("rewards", "ends"):
            assert found[part][0].dtype == expected.dtype
    if "ends" not in parts:
        assert not np.concatenate(found["ends"]).any()

    told = list(dataset.storage.get_episode_metadata(dataset.episode_indices))
    task_of_step = np.repeat([each["task_index"] for each in told], [len(e) for e in episodes])
    horizon = context["rewards"].shape[1]
    np.testing.assert_array_equal(task_of_step, np.repeat(columns["tasks/index"], horizon))
    for each in told:
        expected = columns["tasks/parameters"][each["task_index"]]
        np.testing.assert_array_equal(each["task_parameters"], expected)
        assert each["task_parameters"].dtype == expected.dtype
        assert (each["split"], each["signature"]) == ("train", manifest.signature)
    origin = dataset.storage.metadata["sad_hpc"]
    assert (origin["config"], origin["digest"]) == (manifest.config, manifest.digest)
    # In this order: one a task, or as many as there are ends and cuts.
    lone = name in ("darkroom", "bandit", "pendulum", "pictures", "keypad", "ring")
    assert (len(episodes) == len(columns["tasks/index"])) == lone


def test_an_episode_ends_where_it_says_so_and_where_another_one_begins() -> None:
    states = np.array([[[0], [1], [0], [1], [5]]])
    next_states = np.array([[[1], [0], [1], [2], [6]]])
    ends = np.array([[0, 1, 0, 0, 0]])
    context = {"states": states, "next_states": next_states, "ends": ends}
    context |= {"actions": np.arange(5)[None], "rewards": np.ones((1, 5), np.uint8)}
    cut = [steps for number, steps in cut_into_episodes(context, 5) if number == 0]
    assert [steps["observations"][:, 0].tolist() for steps in cut] == [[0, 1, 0], [0, 1, 2], [5, 6]]
    assert [steps["actions"].tolist() for steps in cut] == [[0, 1], [2, 3], [4]]
    assert [steps["terminations"].any() for steps in cut] == [True, False, False]
    assert [steps["truncations"].tolist() for steps in cut] == [[False] * 2, [False, True], [True]]
    assert all(steps["rewards"].dtype == np.float32 for steps in cut)


def test_an_episode_of_a_history_ends_after_its_steps_wherever_it_is_then() -> None:
    """The next one begins in the state in which this one has ended."""
    states = np.array([[[0], [1], [1], [0], [1], [2]]])
    next_states = np.array([[[1], [1], [0], [1], [2], [2]]])
    context = {"states": states, "next_states": next_states, "rewards": np.zeros((1, 6))}
    context["actions"] = np.arange(6)[None]
    cut = [steps["actions"].tolist() for _, steps in cut_into_episodes(context, 3)]
    assert cut == [[0, 1, 2], [3, 4, 5]]


def test_a_split_and_a_row_are_chosen(tmp_path: Path, home: Path) -> None:
    more = {"name": "SAD, more", "method": "SAD", "set": {"data.tasks": 40}}
    run = run_of("darkroom", tmp_path, rows=["SAD", more])
    own, _ = run.of_element("SAD, more", 0)
    collect(own)
    export = ["export", str(run.path), "--minari", str(tmp_path / "shared"), "--split", "test"]
    assert main(export) == 1  # of the other rows there is none
    assert main([*export, "--row", "SAD, more"]) == 0
    dataset = minari.MinariDataset(tmp_path / "shared" / "darkroom_1-test-v0" / "data")
    manifest = Manifest.load(own.data().path / "test")
    assert dataset.total_episodes == manifest.n_tasks > 0
    assert dataset.storage.metadata["sad_hpc"]["digest"] == manifest.digest


def test_what_is_in_the_way_is_named(
    tiny_run: Run,
    tmp_path: Path,
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    shared = tmp_path / "shared"
    export = ["export", str(tiny_run.path), "--minari", str(shared)]
    assert main(export) == 0
    assert "load_dataset('tiny-train-v0')" in capsys.readouterr().out
    assert main(export) == 1
    assert "tiny-train-v0 already exists" in capsys.readouterr().err
    assert [path.name for path in shared.iterdir()] == ["tiny-train-v0"]
    assert main([*export, "--seed", "0"]) == 1
    assert "--minari does not accept --seed" in capsys.readouterr().err
    assert main([*export[:2], "--weights", str(shared), "--split", "test"]) == 1
    assert "--weights needs --row and --seed" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "minari", None)
    assert main([*export, "--split", "test"]) == 1
    assert "pip install 'sad_hpc[minari]'" in capsys.readouterr().err


def test_a_run_without_a_dataset_has_no_episodes(
    tmp_path: Path, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Run(load_experiment(ROOT / "tests/configs/tiny.yaml"), tmp_path)
    run.prepare(["test"])
    assert main(["export", str(run.path), "--minari", str(tmp_path / "shared")]) == 1
    assert "no dataset at" in capsys.readouterr().err
    assert not (tmp_path / "shared").exists()


def test_a_folder_may_be_relative(
    tiny_run: Run, tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["export", str(tiny_run.path), "--minari", "shared"]) == 0
    assert [path.name for path in (tmp_path / "shared").iterdir()] == ["tiny-train-v0"]


def test_an_export_that_fails_leaves_nothing(
    tiny_run: Run, tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(interchange, "_append", full)
    assert main(["export", str(tiny_run.path), "--minari", str(tmp_path / "shared")]) == 1
    assert not list((tmp_path / "shared").iterdir())
    assert not home.exists()


def test_images_are_refused() -> None:
    experiment = load_experiment(ROOT / "configs/miniworld.yaml")
    with pytest.raises(UserError, match="miniworld cannot be exported: a dataset has no image"):
        observation_space(make_family(experiment.task))
