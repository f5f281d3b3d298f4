import json
import os
import subprocess
from pathlib import Path

import pytest

from sad_hpc.errors import SadError
from sad_hpc.files import atomic_path, read_json, write_json
from sad_hpc.run import StageFolder, provenance


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path):
    path = tmp_path / "file"
    write_json(path, 1)
    with pytest.raises(KeyError), atomic_path(path) as temporary:
        temporary.write_text("half")
        raise KeyError
    assert read_json(path) == 1
    assert os.listdir(tmp_path) == ["file"]


def test_torn_json_reads_as_missing(tmp_path: Path):
    (tmp_path / "x").write_text('{"a": ')
    assert read_json(tmp_path / "x") is None


def test_a_folder_of_another_config_is_refused_with_the_difference(tmp_path: Path):
    folder = StageFolder("collect", tmp_path / "f")
    folder.prepare({"seed": 0})
    folder.prepare({"seed": 0})
    with pytest.raises(SadError, match="seed: 0 -> 1"):
        folder.prepare({"seed": 1})


def test_markers_and_heartbeats_round_trip(tmp_path: Path):
    folder = StageFolder("collect", tmp_path)
    assert folder.done is None and folder.progress is None
    folder.heartbeat(3, 7, "blocks")
    folder.complete(digest="abc")
    assert folder.done is not None and folder.done["digest"] == "abc"
    assert folder.progress is not None and folder.progress["done"] == 3
    assert folder.progress["pid"] == os.getpid()


def test_provenance_names_commit_and_libraries():
    content = json.loads(json.dumps(provenance()))
    assert content["libraries"]["torch"].startswith("2.")
    assert set(content) >= {"commit", "dirty", "host", "python", "time"}


def test_an_unwritable_folder_is_named(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(SadError, match="cannot write"):
        StageFolder("collect", tmp_path / "file" / "below").prepare({})


@pytest.fixture
def small_disk(tmp_path: Path):
    """A file system of 256 KiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(folder)], capture_output=True
    )
    if mounted.returncode:
        pytest.skip("mounting a small tmpfs needs root")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk_is_one_line_and_leaves_no_half_file(small_disk: Path):
    with pytest.raises(SadError, match="No space left") as caught:
        write_json(small_disk / "big.json", "x" * 500_000)
    assert "big.json" in str(caught.value) and "\n" not in str(caught.value)
    assert os.listdir(small_disk) == []
    write_json(small_disk / "small.json", "x")


def test_collection_on_a_full_disk_keeps_the_shards_that_fit(small_disk: Path):
    from sad_hpc.collect import collect
    from sad_hpc.dataset.schema import Manifest
    from sad_hpc.dataset.verify import verify
    from sad_hpc.experiment_file import load_experiment
    from sad_hpc.run import Run
    from tests.conftest import TINY

    run = Run(load_experiment(TINY, ["data.tasks=9000", "data.block_tasks=200"]), small_disk)
    with pytest.raises(SadError, match=r"cannot write.*No space left") as caught:
        collect(run)
    assert "shard-" in str(caught.value) and "\n" not in str(caught.value)
    train = run.data().path / "train"
    assert not [name for name in os.listdir(train) if name.endswith(".tmp")]
    if (train / "manifest.json").exists():
        assert Manifest.load(train).shards
        assert "shards" in verify(train).faults[0]
