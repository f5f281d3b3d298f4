import json
import os
import shutil
from pathlib import Path

import h5py
import numpy as np
import pytest

from sad_hpc.cli import main
from sad_hpc.collect.stage import collect
from sad_hpc.dataset.reader import load_complete, read_columns
from sad_hpc.dataset.schema import FORMAT_VERSION, Manifest
from sad_hpc.dataset.verify import inspect, verify
from sad_hpc.distill import make_block
from sad_hpc.errors import DatasetError
from sad_hpc.experiment.load import load_experiment
from sad_hpc.storage.files import checksum
from sad_hpc.storage.json_files import sealed, unsealed
from sad_hpc.storage.run import Run
from sad_hpc.tasks.base import make_family
from tests.conftest import TINY

LAST = np.zeros((100, 3), np.bool_)
"""The last label of three, of one task of a shard."""
LAST[60, 2] = True


@pytest.fixture
def dataset(tiny_run: Run, tmp_path: Path) -> Path:
    """A copy of the training split that a test may damage."""
    folder = tmp_path / "train"
    shutil.copytree(tiny_run.data().path / "train", folder)
    return folder


@pytest.fixture(scope="module")
def run_of_three(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Collected with three queries a task; tests must not change it."""
    experiment = load_experiment(TINY, ["data.queries_per_task=3"])
    run = Run(experiment, tmp_path_factory.mktemp("three"))
    collect(run)
    return run


def list_again(dataset: Path, block: int) -> None:
    """Write the shard's present size and checksum into the manifest."""
    content = (dataset / f"shard-{block:05d}.h5").read_bytes()
    manifest = unsealed(json.loads((dataset / "manifest.json").read_text()))
    manifest["shards"][block] |= {"bytes": len(content), "checksum": checksum(content)}
    (dataset / "manifest.json").write_text(json.dumps(sealed(manifest)))


def test_what_is_read_is_what_the_kernels_made(tiny_run: Run):
    experiment = tiny_run.experiment
    family = make_family(experiment.task)
    folder = tiny_run.data().path / "train"
    manifest = Manifest.load(folder)
    blocks = [make_block(family, experiment.data, "train", b) for b in range(manifest.n_blocks)]
    names = list(blocks[0].arrays)
    columns = read_columns(folder, manifest, names)
    for name in names:
        expected = np.concatenate([block.arrays[name] for block in blocks])
        assert columns[name].dtype == expected.dtype
        assert (columns[name] == expected).all()
    assert manifest.steps["labels_sad"] == sum(b.steps["labels_sad"] for b in blocks)


def test_a_file_has_the_groups_and_attributes_of_the_format(tiny_run: Run):
    with h5py.File(tiny_run.data().path / "train/shard-00000.h5") as file:
        assert set(file) == {"transitions", "episodes", "labels", "tasks"}
        assert file["transitions/states"].shape == (100, 9, 2)
        assert file["transitions/states"].dtype == file["transitions/rewards"].dtype == np.uint8
        assert all(file[f"labels/{name}/actions"].fletcher32 for name in ("sad", "dpt", "dpt_star"))
        assert file["transitions/states"].chunks[1:] == (9, 2)
        attributes = dict(file.attrs)
    assert attributes["format_version"] == FORMAT_VERSION
    assert attributes["signature"] == tiny_run.experiment.data_signature()
    assert json.loads(attributes["config"]) == tiny_run.experiment.data_config()
    assert (attributes["horizon"], attributes["trust_horizon"]) == (9, 3)
    assert attributes["steps_transitions"] == 900


def test_the_virtual_dataset_shows_all_shards_and_can_be_moved(tiny_run: Run, dataset: Path):
    moved = dataset.rename(dataset.parent / "elsewhere")
    columns = read_columns(moved, Manifest.load(moved), ["transitions/states", "tasks/index"])
    with h5py.File(moved / "dataset.h5") as file:
        assert file["transitions/states"].is_virtual
        assert (file["transitions/states"][...] == columns["transitions/states"]).all()
        assert (file["tasks/index"][...] == np.arange(600)).all()
        assert file.attrs["steps_transitions"] == 600 * 9


def test_tasks_are_numbered_and_goals_are_of_the_right_split(tiny_run: Run):
    family = make_family(tiny_run.experiment.task)
    for split, count in (("train", 600), ("test", 300)):
        folder = tiny_run.data().path / split
        columns = read_columns(folder, Manifest.load(folder), ["tasks/index", "tasks/parameters"])
        assert (columns["tasks/index"] == np.arange(count)).all()
        assert {tuple(p) for p in columns["tasks/parameters"]} == {
            tuple(goal) for goal in family.distinct_tasks(split)
        }


def test_oracle_labels_are_optimal_and_random_ones_are_not(tiny_run: Run):
    accuracy = inspect(tiny_run.data().path / "train")["label_accuracy"]
    assert accuracy["dpt_star"] == 1
    assert accuracy["dpt"] < accuracy["sad"] < 1


def test_verify_finds_nothing_wrong_with_a_fresh_dataset(tiny_run: Run, capsys):
    assert main(["verify", str(tiny_run.path)]) == 0
    assert capsys.readouterr().out.count("ok") == 2


def test_inspect_prints_json(tiny_run: Run, capsys):
    assert main(["inspect", str(tiny_run.path), "--json"]) == 0
    train, test = json.loads(capsys.readouterr().out)
    assert (train["tasks"], test["tasks"]) == (600, 300)
    assert train["steps_per_task"]["transitions"] == 9


@pytest.mark.parametrize("place", ["start", "middle", "end"])
def test_one_flipped_bit_is_found(dataset: Path, place: str, capsys):
    path = dataset / "shard-00002.h5"
    content = bytearray(path.read_bytes())
    content[{"start": 0, "middle": len(content) // 2, "end": -1}[place]] ^= 4
    path.write_bytes(content)
    assert main(["verify", str(dataset)]) == 1
    assert "shard-00002.h5" in capsys.readouterr().err
    with pytest.raises(DatasetError, match=r"shard-00002\.h5 is damaged"):
        read_columns(dataset, Manifest.load(dataset), ["transitions/states"])


def test_a_truncated_and_a_missing_shard_are_found(dataset: Path, capsys):
    os.truncate(dataset / "shard-00001.h5", 1000)
    (dataset / "shard-00003.h5").unlink()
    assert main(["verify", str(dataset)]) == 1
    errors = capsys.readouterr().err
    assert "shard-00001.h5 has 1,000 bytes" in errors
    assert "shard-00003.h5 is missing" in errors


def test_whole_shards_beside_a_missing_one_have_no_fault(dataset: Path):
    manifest = unsealed(json.loads((dataset / "manifest.json").read_text()))
    del manifest["shards"][1]
    (dataset / "manifest.json").write_text(json.dumps(sealed(manifest)))
    (dataset / "shard-00001.h5").unlink()
    (fault,) = verify(dataset).faults
    assert "5 of 6 shards" in fault


def test_labels_of_an_oracle_that_errs_on_purpose_have_no_fault(tmp_path: Path):
    run = Run(load_experiment(TINY, ["data.oracle_error=0.5"]), tmp_path)
    collect(run)
    assert verify(run.data().path / "train").faults == []


def test_a_shard_of_another_dataset_is_found_even_with_a_right_checksum(
    dataset: Path, tmp_path: Path
):
    other = Run(load_experiment(TINY, ["data.seed=1"]), tmp_path / "runs")
    collect(other)
    foreign = other.data().path / "train"
    shutil.copy(foreign / "shard-00000.h5", dataset / "shard-00000.h5")
    manifest = unsealed(json.loads((dataset / "manifest.json").read_text()))
    manifest["shards"][0] = json.loads((foreign / "manifest.json").read_text())["shards"][0]
    (dataset / "manifest.json").write_text(json.dumps(sealed(manifest)))
    assert "belongs to another dataset" in verify(dataset).faults[0]


def test_wrong_dynamics_are_found_even_with_a_right_checksum(dataset: Path):
    with h5py.File(dataset / "shard-00000.h5", "r+") as file:
        file["transitions/rewards"][3, 4] = 1 - file["transitions/rewards"][3, 4]
    list_again(dataset, 0)
    assert "breaks the dynamics" in verify(dataset).faults[0]


@pytest.mark.parametrize(
    "name, change, words",
    [
        ("labels/sad/actions", lambda a: a * 0 + 9, "holds numbers outside of 0 to 4"),
        ("labels/dpt/query_states", lambda a: a * 0 + 7, "labels/dpt has"),
        ("labels/dpt_star/actions", lambda a: (a + 1) % 5, "not optimal"),
        ("tasks/index", lambda a: a * 0, "does not count"),
        ("tasks/parameters", None, "tasks/parameters is missing"),
        ("transitions/rewards", None, "transitions/rewards is missing"),
    ],
)
def test_wrong_content_is_found_even_with_a_right_checksum(
    dataset: Path, name: str, change, words: str
):
    with h5py.File(dataset / "shard-00001.h5", "r+") as file:
        if change is None:
            del file[name]
        else:
            file[name][...] = change(file[name][...])
    list_again(dataset, 1)
    assert words in verify(dataset).faults[0]


def test_a_dataset_of_three_queries_a_task_says_so_and_is_right(run_of_three: Run):
    for split in ("train", "test"):
        assert verify(run_of_three.data().path / split).faults == []
    found = inspect(run_of_three.data().path / "train")
    assert found["datasets"]["labels/sad/query_states"] == "(600, 3, 2) uint8"
    assert found["datasets"]["labels/dpt/actions"] == "(600, 3) uint8"
    assert found["label_accuracy"]["dpt_star"] == 1 > found["label_accuracy"]["sad"]
    assert found["config"]["data"]["queries_per_task"] == 3


def test_three_labels_take_three_times_the_transitions(tiny_run: Run, run_of_three: Run):
    one, three = (
        inspect(run.data().path / "train")["steps_per_task"] for run in (tiny_run, run_of_three)
    )
    assert three["labels_sad"] == pytest.approx(3 * one["labels_sad"], rel=0.1)
    assert three["transitions"] == one["transitions"] == 9


@pytest.mark.parametrize(
    ("name", "change", "words"),
    [
        ("actions", lambda a: np.where(LAST, 9, a), "holds numbers outside of"),
        ("query_states", lambda a: np.where(LAST[..., None], 7, a), "actions that are not valid"),
        ("actions", lambda a: np.where(LAST, (a + 1) % 5, a), "not optimal"),
        ("actions", lambda a: a[:, :2], "actions has shape (100, 2) instead of (100, 3)"),
        ("query_states", lambda a: a[:, 0], "states has shape (100, 2) instead of (100, 3, 2)"),
    ],
)
def test_one_wrong_label_of_three_is_found(
    run_of_three: Run, tmp_path: Path, name: str, change, words: str
):
    dataset = tmp_path / "train"
    shutil.copytree(run_of_three.data().path / "train", dataset)
    with h5py.File(dataset / "shard-00001.h5", "r+") as file:
        array = file[f"labels/dpt_star/{name}"][...]
        del file[f"labels/dpt_star/{name}"]
        file[f"labels/dpt_star/{name}"] = change(array).astype(np.uint8)
    list_again(dataset, 1)
    assert words in verify(dataset).faults[0]


def test_a_missing_split_and_a_missing_virtual_dataset_are_found(
    tiny_run: Run, tmp_path: Path, capsys
):
    copy = tmp_path / "dataset"
    shutil.copytree(tiny_run.data().path, copy)
    (copy / "train/dataset.h5").unlink()
    assert main(["verify", str(copy)]) == 1
    assert "train/dataset.h5 is missing" in capsys.readouterr().err
    shutil.rmtree(copy / "test")
    assert main(["verify", str(copy)]) == 1
    assert "test" in capsys.readouterr().err


@pytest.mark.parametrize("content", ["", "{}", "[]", '{"format_version": 2, "shards": [{}]}'])
def test_a_damaged_manifest_is_one_line(dataset: Path, content: str):
    (dataset / "manifest.json").write_text(content)
    with pytest.raises(DatasetError, match="damaged"):
        Manifest.load(dataset)


def test_another_format_version_is_refused(dataset: Path):
    manifest = unsealed(json.loads((dataset / "manifest.json").read_text()))
    (dataset / "manifest.json").write_text(json.dumps(sealed(manifest | {"format_version": 99})))
    with pytest.raises(DatasetError, match="format version 99"):
        Manifest.load(dataset)


def test_a_dataset_of_another_config_is_refused_with_the_difference(dataset: Path):
    other = load_experiment(TINY, ["data.trust_horizon=5"])
    with pytest.raises(DatasetError, match=r"data\.trust_horizon: 3 -> 5"):
        load_complete(dataset, other.data_signature(), other.data_config())


def test_an_incomplete_dataset_is_refused(dataset: Path, tiny_run: Run):
    manifest = Manifest.load(dataset)
    del manifest.shards[2]
    manifest.save(dataset)
    experiment = tiny_run.experiment
    with pytest.raises(DatasetError, match="5 of 6 shards"):
        load_complete(dataset, experiment.data_signature(), experiment.data_config())


def test_no_dataset_is_one_line(tmp_path: Path, capsys):
    assert main(["verify", str(tmp_path)]) == 1
    assert capsys.readouterr().err.startswith("sad-hpc: error: no dataset at")
