"""Imported contexts: training uses them unchanged, with labels of their tasks."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from sad_hpc.cli import main
from sad_hpc.collect.stage import collect
from sad_hpc.dataset.imported import import_contexts
from sad_hpc.dataset.interchange import export_episodes
from sad_hpc.dataset.reader import read_columns
from sad_hpc.dataset.schema import Manifest
from sad_hpc.dataset.verify import find_splits, inspect, verify
from sad_hpc.errors import UserError
from sad_hpc.experiment.load import load_experiment, parse_experiment
from sad_hpc.pretrain.examples import Examples
from sad_hpc.pretrain.training_columns import TrainingColumns
from sad_hpc.storage.run import Run
from tests.collect.test_collect import files, mpi_collect
from tests.conftest import TINY
from tests.dataset.rooms import Episode, logged, play, room_run, rooms
from tests.dataset.test_interchange import GROUPS, TASKS, run_of


def with_data(run: Run, runs: Path, **data: Any) -> Run:
    """A run in another folder, with other settings of its data."""
    config = run.experiment.model_dump(mode="json")
    config["data"] |= data
    return Run(parse_experiment(config, "test"), runs)


def exported(run: Run, folder: Path) -> Path:
    """The Minari dataset of a run's training split, whose dataset is collected."""
    source = run.data().path / "train"
    name = run.experiment.name
    export_episodes(source, Manifest.load(source), name, folder)
    return folder / f"{name.replace('.', '_')}-train-v0"


def columns(run: Run, split: str) -> dict[str, Any]:
    """Everything that a split holds."""
    folder = run.data().path / split
    manifest = Manifest.load(folder)
    return read_columns(folder, manifest, list(inspect(folder)["datasets"]))


@pytest.mark.parametrize("name", sorted(TASKS))
def test_what_was_exported_comes_back_with_the_same_labels(name: str, tmp_path: Path) -> None:
    # Of a longer history an import would take the first T transitions.
    run = with_data(run_of(name, tmp_path), tmp_path / "runs", history_episodes=1)
    group = GROUPS.get(name, "episodes")
    collect(run)
    own = with_data(run, tmp_path / "imported", q_learning_steps=0)
    contexts = import_contexts(exported(run, tmp_path), own.experiment, own.contexts)
    own = with_data(own, own.runs, imported_contexts=contexts)
    collect(own)
    assert [fault for split in find_splits(own.path) for fault in verify(split).faults] == []
    before, after = columns(run, "train"), columns(own, "train")
    assert before.keys() == after.keys()
    for dataset in after:
        kind, _, part = dataset.partition("/")
        # Algorithm 1's transitions are in no episode: both kinds of context are the logged ones.
        expected = before[f"{group}/{part}" if kind == "transitions" else dataset]
        np.testing.assert_array_equal(after[dataset], expected, dataset)
        assert after[dataset].dtype == expected.dtype
    for dataset, array in columns(run, "test").items():
        if not (name == "histories" and dataset.startswith("episodes")):
            np.testing.assert_array_equal(columns(own, "test")[dataset], array, dataset)
    if "labels/dpt_star/actions" in after:
        assert inspect(own.data().path / "train")["label_accuracy"]["dpt_star"] == 1


@pytest.mark.parametrize("name", ["darkroom", "bandit", "pendulum", "lake"])
def test_labels_are_of_the_tasks_that_were_logged(name: str, tmp_path: Path) -> None:
    # By many rollouts or pulls, so that most labels are right.
    sure = {"bandit": {"trust_horizon": 200}, "pendulum": {}}.get(
        name, {"trust_horizon": 12, "episodes_per_action": 300}
    )
    # Of other tasks than those that the importing run would draw.
    run = with_data(run_of(name, tmp_path), tmp_path, seed=1, tasks=60)
    collect(run)
    own = with_data(run, tmp_path / "imported", seed=0, tasks=40, **sure)
    drawn = with_data(own, tmp_path / "drawn")
    contexts = import_contexts(exported(run, tmp_path), own.experiment, own.contexts)
    own = with_data(own, own.runs, imported_contexts=contexts)
    for each in (own, drawn):
        collect(each)
    found, logged_there = columns(own, "train"), columns(run, "train")
    n_tasks = len(found["tasks/index"])
    for part in ("actions", "rewards"):
        whole = logged_there[f"{GROUPS.get(name, 'episodes')}/{part}"]
        np.testing.assert_array_equal(found[f"transitions/{part}"], whole[:n_tasks])
    parameters = found["tasks/parameters"]
    np.testing.assert_array_equal(parameters, logged_there["tasks/parameters"][:n_tasks])
    if name in ("bandit", "pendulum"):  # drawn from a continuum
        assert not (parameters == columns(drawn, "train")["tasks/parameters"]).any()
    assert verify(own.data().path / "train").faults == []
    if name != "pendulum":
        accuracy = inspect(own.data().path / "train")["label_accuracy"]
        assert accuracy["dpt_star"] == 1
        assert accuracy["sad"] > accuracy["dpt"] + 0.2


@pytest.mark.slow
def test_any_number_of_ranks_makes_the_same_files_of_imported_contexts(
    tiny_run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, made = exported(tiny_run, tmp_path), []
    for ranks in (1, 2):
        runs = tmp_path / str(ranks)
        arguments = ["import", str(TINY), "--minari", str(source), "--runs", str(runs)]
        assert main(arguments) == 0
        contexts = capsys.readouterr().out.split()[-1]
        done = mpi_collect(ranks, runs, contexts)
        assert done.returncode == 0, done.stderr
        made.append(files(Run(load_experiment(TINY, [contexts]), runs)))
    assert made[0] == made[1]
    assert made[0] != files(tiny_run)


def test_an_interrupted_collection_goes_on_to_the_same_files(tiny_run: Run, tmp_path: Path) -> None:
    own = with_data(tiny_run, tmp_path)
    contexts = import_contexts(exported(tiny_run, tmp_path), own.experiment, own.contexts)
    own = with_data(own, tmp_path, imported_contexts=contexts)
    collect(own)
    whole = files(own)
    (own.data().path / "train/shard-00000.h5").unlink()
    (own.data().path / "done.json").unlink()
    collect(own)
    assert files(own) == whole
    # A complete dataset needs them no more.
    own.contexts.rename(tmp_path / "elsewhere")
    collect(own)


def test_what_is_above_the_ideal_is_not_said_of_strangers_tasks(
    tiny_run: Run, tmp_path: Path
) -> None:
    own = with_data(tiny_run, tmp_path)
    contexts = import_contexts(exported(tiny_run, tmp_path), own.experiment, own.contexts)
    own = with_data(own, tmp_path, imported_contexts=contexts)
    collect(own)
    assert Examples.load(TrainingColumns(tiny_run, "SAD"), torch.device("cpu")).ideal is not None
    assert Examples.load(TrainingColumns(own, "SAD"), torch.device("cpu")).ideal is None


def test_the_first_transitions_of_a_tasks_episodes_are_its_context(tmp_path: Path) -> None:
    run = room_run(tmp_path)
    episodes = rooms(run)
    contexts = import_contexts(logged(tmp_path / "m", episodes), run.experiment, run.contexts)
    own = with_data(run, run.runs, imported_contexts=contexts)
    collect(own)
    found = columns(own, "train")
    for task in range(6):
        first, second = (episodes[task + 6 * again][2] for again in range(2))
        for part, where in {"states": slice(0, -1), "next_states": slice(1, None)}.items():
            both = [each["observations"][where] for each in (first, second)]
            expected = np.concatenate(both)[:9]
            np.testing.assert_array_equal(found[f"episodes/{part}"][task], expected)
        for part in ("actions", "rewards"):
            expected = np.concatenate([first[part], second[part]])[:9]
            np.testing.assert_array_equal(found[f"transitions/{part}"][task], expected)
        np.testing.assert_array_equal(found["tasks/parameters"][task], episodes[task][1])
    assert found["tasks/index"].tolist() == list(range(6))
    assert Manifest.load(own.data().path / "train").steps["episodes"] == 0
    assert verify(own.data().path / "train").faults == []


def test_other_data_have_another_name_and_another_dataset(tmp_path: Path) -> None:
    run = room_run(tmp_path)
    episodes = rooms(run)
    names = [
        import_contexts(logged(tmp_path / str(number), each), run.experiment, run.contexts)
        for number, each in enumerate([episodes, episodes, [*rooms(run)[:-1], other_play(run)]])
    ]
    assert names[0] == names[1] != names[2]
    assert sorted(path.name for path in run.contexts.iterdir()) == sorted(set(names))
    experiments = [with_data(run, tmp_path, imported_contexts=name).experiment for name in names]
    signatures = [each.data_signature() for each in (*experiments, run.experiment)]
    assert len(set(signatures)) == 3


def other_play(run: Run) -> Episode:
    task, goal, _ = rooms(run)[-1]
    return task, goal, play(goal, 5, seed=99)


def test_contexts_that_are_missing_damaged_or_of_other_blocks_are_named(tmp_path: Path) -> None:
    run = room_run(tmp_path)
    contexts = import_contexts(logged(tmp_path / "m", rooms(run)), run.experiment, run.contexts)
    with pytest.raises(UserError, match=r"no imported contexts at .*: `sad-hpc import CONFIG"):
        collect(with_data(run, tmp_path, imported_contexts="minari-0123456789ab"))
    named = "data.imported_contexts=minari-0123456789ab"
    command = ["launch", str(TINY), "--runs", str(tmp_path), named]
    assert main(command) == 1  # before any job has begun
    assert not (tmp_path / "tiny").exists()
    with pytest.raises(UserError, match=r"data.block_tasks: 4 -> 3.*import it again"):
        collect(with_data(run, tmp_path, imported_contexts=contexts, block_tasks=3))
    # A folder that was renamed to what another config asks for.
    (run.contexts / contexts).rename(run.contexts / "minari-0123456789ab")
    with pytest.raises(UserError, match="is damaged: its digest differs"):
        collect(with_data(run, tmp_path, imported_contexts="minari-0123456789ab"))
    (run.contexts / "minari-0123456789ab").rename(run.contexts / contexts)
    shard = run.contexts / contexts / "shard-00001.h5"
    shard.write_bytes(shard.read_bytes()[:-1] + b"?")
    with pytest.raises(UserError, match=r"shard-00001.h5 is missing or damaged: remove"):
        collect(with_data(run, tmp_path, imported_contexts=contexts))


@pytest.mark.parametrize(
    "data, words",
    [
        ({"q_learning_steps": 30}, "data.q_learning_steps=30 does not apply to imported contexts"),
        ({"imported_contexts": "my-datasets"}, "data.imported_contexts"),
    ],
)
def test_settings_against_logged_contexts_are_named(data: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError, match=words):
        room_run(Path("runs"), **{"imported_contexts": "minari-0123456789ab"} | data)
