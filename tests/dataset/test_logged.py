"""Faults of logged episodes: an error in one line, before anything is written."""

import json
import math
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st

from sad_hpc.cli import main
from sad_hpc.dataset.imported import import_contexts
from sad_hpc.errors import UserError
from sad_hpc.experiment.load import load_experiment, parse_experiment
from sad_hpc.tasks.base import make_family
from tests.conftest import ROOT, TINY
from tests.dataset.rooms import ROOM, Episode, logged, play, room_run, rooms
from tests.dataset.test_interchange import TASKS


def changed(episodes: list[Episode], **parts: Any) -> list[Episode]:
    """Episodes of which the last has something else."""
    task, goal, steps = episodes[-1]
    return [*episodes[:-1], (task, goal, steps | parts)]


Change = Callable[[list[Episode]], list[Episode]]
BAD_EPISODES: dict[str, Change] = {
    "task 50 has 5 transitions, but task.horizon=9": lambda episodes: episodes[:-1],
    "parameters \\(3, 0\\) are not of a training": lambda e: [*e, (60, (3, 0), e[0][2])],
    "parameters \\(2\\) are not of a training": lambda e: [(t, (2,), s) for t, _, s in e],
    "it has no tasks, or tasks with different": lambda e: [*e, (60, (3,), e[0][2])],
    "task 50 has other parameters in episode 11": lambda e: [*e[:-1], (50, e[0][1], e[-1][2])],
    "has 5 tasks, but data.tasks=9 needs 6": lambda e: [each for each in e if each[0]],
    "episode 12 lacks task_index": lambda e: [*e, (1.5, e[0][1], e[0][2])],
    "do not fit: episodes breaks the dynamics": lambda e: changed(e, rewards=np.ones(5)),
    "rewards of episode 11 are not valid in dark": lambda e: changed(e, rewards=np.full(5, 0.5)),
    "tasks 40 to 50 do not fit: episodes are not in time": lambda e: changed(e, **elsewhere(e)),
}  # fmt: skip


def elsewhere(episodes: list[Episode]) -> dict[str, Any]:
    """An episode that goes on where none begins and the one before has not ended, and stays."""
    ended = next(steps for task, _, steps in episodes if task == 50)["observations"][-1]
    others = {(2, 2), (1, 1), (0, 2)} - {tuple(ended), tuple(episodes[-1][1])}
    state = min(others)
    return {
        "observations": np.tile(state, (6, 1)),
        "actions": np.full(5, 4),
        "rewards": np.zeros(5),
    }


@pytest.mark.parametrize("words", sorted(BAD_EPISODES))
def test_what_is_wrong_with_episodes_is_named(words: str, tmp_path: Path) -> None:
    run = room_run(tmp_path)
    source = logged(tmp_path / "minari", BAD_EPISODES[words](rooms(run)))
    with pytest.raises(UserError, match=words) as raised:
        import_contexts(source, run.experiment, run.contexts)
    assert "\n" not in str(raised.value)
    assert not run.contexts.exists() or not list(run.contexts.iterdir())


BAD_DATASETS: dict[str, dict[str, Any]] = {
    "has no sad_hpc.config.task": {"origin": None},
    "no sad_hpc.config.task, which": {"origin": {"config": 3}},
    "are test tasks": {"origin": {"config": {"task": ROOM}, "split": "test"}},
    "task.size: 4 -> 3": {"origin": {"config": {"task": ROOM | {"size": 4}}}},
    "task.family: 'bandits' -> 'darkroom'": {"origin": {"config": {"task": {"family": "bandits"}}}},
    "unknown key 'colour'": {"origin": {"config": {"task": ROOM | {"colour": 1}}}},
    "action_space is Discrete\\(6\\)": {"action_space": spaces.Discrete(6)},
    "episode 0 lacks task_index": {"names": ("task", "task_parameters")},
    "or task_parameters": {"names": ("task_index", "goal")},
}


@pytest.mark.parametrize("words", sorted(BAD_DATASETS))
def test_what_is_wrong_with_a_dataset_is_named(words: str, tmp_path: Path) -> None:
    run = room_run(tmp_path)
    source = logged(tmp_path / "minari", rooms(run), **BAD_DATASETS[words])
    with pytest.raises(UserError, match=words) as raised:
        import_contexts(source, run.experiment, run.contexts)
    assert "\n" not in str(raised.value)


def test_states_of_another_shape_are_named(tmp_path: Path) -> None:
    run = room_run(tmp_path)
    wide = [
        (task, goal, steps | {"observations": np.zeros((6, 3), np.int64)})
        for task, goal, steps in rooms(run)
    ]
    source = logged(tmp_path / "m", wide, observation_space=spaces.MultiDiscrete([3, 3, 3]))
    with pytest.raises(UserError, match=r"observation_space is MultiDiscrete.* has Box"):
        import_contexts(source, run.experiment, run.contexts)


def test_a_test_task_is_no_training_task(tmp_path: Path) -> None:
    run = room_run(tmp_path)
    goal = make_family(run.experiment.task).distinct["test"][0]
    source = logged(tmp_path / "minari", [*rooms(run), (60, goal, play(goal, 9, seed=0))])
    with pytest.raises(UserError, match="not of a training task of darkroom_3x3"):
        import_contexts(source, run.experiment, run.contexts)


FOREIGN = {
    "darkroom": (3, 3),
    "bandit": (0.1, 0.2, 0.3, 0.4, 1.5),
    "pendulum": (15.5,),
    "cartpole": (4.5,),
    "lake": (2,),
}


@pytest.mark.parametrize("name", sorted(FOREIGN))
def test_a_family_knows_its_training_tasks(name: str) -> None:
    config = {"name": "x", "task": TASKS[name], "rows": ["SAD"], "evaluate": {"tasks": 2}}
    config["data"] = {"tasks": 20, "trust_horizon": 3}
    config["pretrain"] = {"epochs": 1, "holdout_tasks": 4, "batch_size": 4}
    family = make_family(parse_experiment(config, "test").task)
    foreign = np.array([FOREIGN[name]], np.float64)
    for wrong in (foreign, np.full((1, 7), 0.5), np.full_like(foreign, np.nan)):
        with pytest.raises(UserError, match=r"parameters \(.*\) are not of a training task"):
            family.stored_tasks(wrong)


def test_minari_and_a_dataset_are_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["import", str(TINY), "--runs", str(tmp_path), "--minari", str(tmp_path / "none")]
    assert main(command) == 1
    assert "no Minari dataset at" in capsys.readouterr().err
    (tmp_path / "none/data").mkdir(parents=True)
    assert main(command) == 1
    assert "cannot read the Minari dataset" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "minari", None)
    assert main(command) == 1
    assert "pip install 'sad_hpc[minari]'" in capsys.readouterr().err


def test_images_are_not_imported(tmp_path: Path) -> None:
    experiment = load_experiment(ROOT / "configs/miniworld.yaml")
    with pytest.raises(UserError, match=r"data.imported_contexts is for tabular"):
        import_contexts(tmp_path, experiment, tmp_path)


Attack = Callable[[h5py.Group, Path], object]
ATTACKS: dict[str, Attack] = {
    "external storage": lambda group, secret: group.create_dataset(
        "rewards", (5,), "f8", external=[(secret, 0, 40)]
    ),
    "external link": lambda group, secret: group.__setitem__(
        "rewards", h5py.ExternalLink(secret, "x")
    ),
    "virtual": lambda group, secret: group.create_virtual_dataset("rewards", virtual(secret)),
    "soft link": lambda group, _: group.__setitem__("rewards", h5py.SoftLink("/episode_1/rewards")),
    "too large": lambda group, _: group.create_dataset("rewards", (10**13,), "f8", chunks=(100,)),
    "link to a folder": lambda group, secret: group.__setitem__(
        "more", h5py.ExternalLink(secret, "/")
    ),
}


def virtual(secret: Path) -> h5py.VirtualLayout:
    layout = h5py.VirtualLayout((5,), "f8")
    layout[:] = h5py.VirtualSource(secret, "x", (5,))
    return layout


@pytest.mark.parametrize("attack", sorted(ATTACKS))
def test_nothing_outside_of_a_dataset_is_read(attack: str, tmp_path: Path) -> None:
    run = room_run(tmp_path)
    source = logged(tmp_path / "minari", rooms(run))
    secret = tmp_path / "secret.h5"
    with h5py.File(secret, "w") as file:
        file["x"] = np.zeros(5)
    with h5py.File(source / "data/main_data.hdf5", "a") as file:
        del file["episode_0/rewards"]
        ATTACKS[attack](file["episode_0"], secret)
    with pytest.raises(UserError, match=r"lies in another file|would take") as raised:
        import_contexts(source, run.experiment, run.contexts)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("name", ["main_data.hdf5", "metadata.json", "more"])
def test_links_and_pipes_in_a_dataset_are_refused(name: str, tmp_path: Path) -> None:
    run = room_run(tmp_path)
    source = logged(tmp_path / "minari", rooms(run))
    path = source / "data" / name
    path.unlink(missing_ok=True)
    (tmp_path / "secret").write_text("{}")
    for make in (lambda: path.symlink_to(tmp_path / "secret"), lambda: os.mkfifo(path)):
        make()
        with pytest.raises(UserError, match="a link or a pipe"):
            import_contexts(source, run.experiment, run.contexts)
        path.unlink()


def test_no_environment_of_a_stranger_is_made(tmp_path: Path) -> None:
    run = room_run(tmp_path)
    source = logged(tmp_path / "minari", rooms(run))
    path = source / "data/metadata.json"
    metadata = json.loads(path.read_text())
    del metadata["action_space"]
    touch = {"id": "X-v0", "entry_point": "pathlib:Path.touch", "kwargs": {}}
    path.write_text(json.dumps(metadata | {"env_spec": json.dumps(touch)}))
    with pytest.raises(UserError, match="lacks spaces"):
        import_contexts(source, run.experiment, run.contexts)


JUNK = st.sampled_from([None, 0, -1, 10**30, math.nan, "", "x", [], {}, [[[]]], {"type": "Box"}])


@pytest.fixture(scope="module")
def intact(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path]:
    """A run and a Minari dataset for it."""
    folder = tmp_path_factory.mktemp("intact")
    run = room_run(folder)
    return run, logged(folder / "minari", rooms(run))


@settings(max_examples=60, derandomize=True, deadline=None)
@given(data=st.data())
def test_a_dataset_with_missing_or_wrong_parts_is_refused_in_a_line(
    intact: tuple[Any, Path], data: st.DataObject
) -> None:
    run, source = intact
    with tempfile.TemporaryDirectory() as name:
        theirs = Path(shutil.copytree(source, Path(name) / "theirs"))
        if data.draw(st.booleans()):
            path = theirs / "data/metadata.json"
            metadata = json.loads(path.read_text())
            metadata[data.draw(st.sampled_from(sorted(metadata)))] = data.draw(JUNK)
            path.write_text(json.dumps(metadata))
        else:
            with h5py.File(theirs / "data/main_data.hdf5", "a") as file:
                spoil(file["episode_0"], data)
        try:
            import_contexts(theirs, run.experiment, Path(name) / "contexts")
        except UserError as error:
            assert "\n" not in str(error) and len(str(error)) < 1000


def spoil(episode: h5py.Group, data: st.DataObject) -> None:
    """Removes a part or an attribute of an episode, or replaces it."""
    if data.draw(st.booleans()):
        name = data.draw(st.sampled_from(sorted(episode.attrs)))
        del episode.attrs[name]
        if data.draw(st.booleans()):
            episode.attrs[name] = data.draw(st.sampled_from([0, "x", [1.5, 2], math.nan, b"\xff"]))
        return
    name = data.draw(st.sampled_from(sorted(episode)))
    del episode[name]
    values = [np.zeros(3), np.zeros((5, 2, 2)), "x", np.array(7), np.full(5, math.inf)]
    if data.draw(st.booleans()):
        episode[name] = values[data.draw(st.integers(0, len(values) - 1))]
    elif data.draw(st.booleans()):
        episode.create_group(name)
