import json
import os
from pathlib import Path

import pytest

from sad_hpc.errors import SadError
from sad_hpc.experiment_file import load_experiment
from sad_hpc.files import atomic_path, read_json, write_json
from sad_hpc.holder import HEARTBEAT
from sad_hpc.progress import Progress
from sad_hpc.run import Run, StageFolder, provenance
from tests.conftest import TINY


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


def test_a_heartbeat_that_cannot_be_written_ends_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = StageFolder("collect", tmp_path / "f")
    (folder.path / HEARTBEAT).mkdir(parents=True)
    with Progress(folder, 2, "blocks", seconds=0) as progress:
        progress.update(1)
    assert "no heartbeat: cannot write" in capsys.readouterr().err


def test_no_stage_writes_where_another_user_could(tmp_path: Path):
    run = Run(load_experiment(TINY), tmp_path)
    run.path.mkdir()
    run.path.chmod(0o777)
    with pytest.raises(SadError, match="writable by everyone"), run.writing(run.data(), {}):
        pass
    assert not [path for path in run.path.rglob("*") if path.is_file()]
