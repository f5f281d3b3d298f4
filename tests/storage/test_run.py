import errno
import json
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sad_hpc import cli
from sad_hpc.aggregate.stage import aggregate
from sad_hpc.errors import UserError
from sad_hpc.evaluate.stage import evaluate
from sad_hpc.experiment.load import load_experiment
from sad_hpc.launch.graph import graph
from sad_hpc.launch.records import load_records, save_records
from sad_hpc.launch.slurm import QueueEntry, ask
from sad_hpc.launch.status import step_states
from sad_hpc.storage import plain_json
from sad_hpc.storage.files import atomic_path, read_whole, write_error
from sad_hpc.storage.json_files import read_json, sealed, unsealed, write_json
from sad_hpc.storage.lock import HEARTBEAT
from sad_hpc.storage.progress import Progress
from sad_hpc.storage.provenance import PACKAGE, provenance
from sad_hpc.storage.run import Run
from sad_hpc.storage.stage_folder import StageFolder
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
    with pytest.raises(UserError, match="seed: 0 -> 1"):
        folder.prepare({"seed": 1})


def test_who_goes_on_with_an_output_by_other_versions_is_recorded(tmp_path: Path, monkeypatch):
    folder = StageFolder("collect", tmp_path / "f")
    folder.prepare({})
    for commit in ("later", "later", "latest"):
        now = provenance() | {"commit": commit}
        monkeypatch.setattr("sad_hpc.storage.stage_folder.provenance", lambda now=now: now)
        folder.prepare({})
    record = json.loads((folder.path / "provenance.json").read_text())
    assert record["commit"] == provenance()["commit"]
    assert [maker["commit"] for maker in record["resumed"]] == ["later", "latest"]
    folder.complete()
    reader = now | {"commit": "reader"}
    monkeypatch.setattr("sad_hpc.storage.stage_folder.provenance", lambda: reader)
    folder.prepare({})
    assert json.loads((folder.path / "provenance.json").read_text()) == record


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
    assert (content["gpu"] is not None) == torch.cuda.is_available()


def test_provenance_watches_the_whole_package():
    assert Path(cli.__file__).parent == PACKAGE


def test_an_unwritable_folder_is_named(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot write"):
        StageFolder("collect", tmp_path / "file" / "below").prepare({})


def test_a_heartbeat_that_cannot_be_written_ends_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = StageFolder("collect", tmp_path / "f")
    (folder.path / HEARTBEAT).mkdir(parents=True)
    with Progress(folder, 2, "blocks", seconds=0) as progress:
        progress.update(1)
    assert "heartbeat not written: cannot write" in capsys.readouterr().err


def test_no_stage_writes_where_another_user_could(tmp_path: Path):
    run = Run(load_experiment(TINY), tmp_path)
    run.path.mkdir()
    run.path.chmod(0o777)
    with pytest.raises(UserError, match="writable by everyone"), run.writing(run.data(), {}):
        pass
    assert not [path for path in run.path.rglob("*") if path.is_file()]


@pytest.mark.parametrize("opened", ["logs/pretrain", "data", "checkpoints"])
def test_no_stage_reads_where_another_user_could_write(opened: str, tmp_path: Path):
    run = Run(load_experiment(TINY), tmp_path)
    (run.path / opened).mkdir(parents=True)
    (run.path / opened).chmod(0o777)
    expected = pytest.raises(UserError, match=f"{opened} is writable by everyone")
    with expected, run.writing(run.evaluation("SAD", 0), {}):
        pass
    with expected:
        evaluate(run, "SAD", 0)
    with expected:
        aggregate(run, tmp_path / "results")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["outputs", "done", "total", "time", "x"]), inner)
    ),
    max_leaves=8,
)
BEAT = {"done": 1, "total": 2, "unit": "blocks", "time": 0, "host": "n", "pid": 1, "requeued": 0}
RECORD = {"id": "5", "executor": "slurm", "submitted": 0, "log": "l", "host": "n"}


@settings(derandomize=True, deadline=None, database=None, max_examples=30)
@given(st.data())
def test_json_of_wrong_types_counts_as_absent(data: st.DataObject):
    run = Run(load_experiment(TINY, ["rows=[SAD]", "seeds=[0]"]), Path(tempfile.mkdtemp()))
    step = graph(run)[0]

    def some(good: dict) -> object:
        """Anything, or what is right but for one value."""
        keys = st.sampled_from(sorted(good))
        return data.draw(JSON | st.builds(lambda key, value: {**good, key: value}, keys, JSON))

    try:
        step.folder.path.mkdir(parents=True)
        write_json(step.folder.path / "done.json", some({"finished": 1.0, "outputs": {}}))
        write_json(step.folder.path / "progress.json", some(BEAT))
        write_json(run.path / "jobs.json", {step.title: some(RECORD)})
        write_json(run.path / ".slurm.json", some({"asked": 0.0, "jobs": {}, "error": ""}))
        records = load_records(run)
        assert all(isinstance(record.id, str) for record in records.values())
        for jobs in (None, {}, {"5": QueueEntry("RUNNING")}, {"5": QueueEntry("FAILED")}):
            assert step_states([step], records, jobs)[0].text
        ask(run, [step], records)
        save_records(run, {})
        write_json(run.path / "jobs.json", some(RECORD))
        load_records(run)
    finally:
        shutil.rmtree(run.runs)


def test_a_marker_says_nothing_if_its_outputs_are_no_table(tmp_path: Path):
    folder = StageFolder("collect", tmp_path)
    for marker in ([], {}, "x", {"outputs": []}, {"outputs": {"a": "b"}}):
        write_json(tmp_path / "done.json", marker)
        assert folder.done is None


@pytest.mark.parametrize("name", ["config.json", "provenance.json", "metrics.jsonl"])
def test_a_record_that_was_changed_after_its_stage_is_refused(tmp_path: Path, name: str):
    folder = StageFolder("pretrain", tmp_path / "f")
    folder.prepare({"seed": 0})
    (folder.path / "metrics.jsonl").write_text('{"epoch": 1}\n')
    folder.complete(records=["metrics.jsonl"])
    folder.check_records()
    with (folder.path / name).open("a") as file:
        file.write("\n")
    with pytest.raises(UserError, match=f"{name} was changed after its stage") as raised:
        folder.check_records()
    assert "\n" not in str(raised.value)
    assert folder.done is not None
    marker = unsealed(read_json(folder.path / "done.json"))
    del marker["checksums"]  # as earlier versions have written it
    write_json(folder.path / "done.json", sealed(marker))
    folder.check_records()


REMEDIES = {
    errno.ENOSPC: "free space",
    errno.EDQUOT: "free space",
    errno.EFBIG: "raise the limit",
    errno.EEXIST: "remove the file or folder of this name",
    errno.EROFS: "mount its file system for writing",
    errno.EIO: "check the disk",
    errno.EACCES: "make its folder writable",
}


@pytest.mark.parametrize("number", [*REMEDIES, errno.EINVAL])
def test_a_failed_write_is_advised_by_its_cause(number: int):
    said = str(write_error(Path("runs/x"), OSError(number, os.strerror(number))))
    assert said.startswith(f"cannot write runs/x: {os.strerror(number)}; ")
    assert {words for words in REMEDIES.values() if words in said} == {
        words for cause, words in REMEDIES.items() if cause == number
    }
    assert said.endswith("choose other folders (--runs, --results)")


def test_a_file_in_the_place_of_a_folder_is_no_lack_of_space(tmp_path: Path):
    (tmp_path / "f").write_text("")
    with pytest.raises(UserError, match="File exists; remove the file or folder of this name"):
        StageFolder("collect", tmp_path / "f").prepare({})


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: os.symlink("/dev/zero", path)])
def test_only_regular_files_are_read(tmp_path: Path, make: Callable[[Path], object]):
    make(tmp_path / "x")
    assert read_json(tmp_path / "x") is None
    with pytest.raises(OSError):
        read_whole(tmp_path / "x")


@pytest.mark.parametrize(
    "text", ["[" * 10**5, '{"a":' * 10**5, '"\\u0000"', '"\\ud800"', "[" * 70 + "]" * 70, "\xff"]
)
def test_json_that_is_not_plain_is_refused(text: str):
    with pytest.raises(ValueError):
        plain_json.parse(text)
    assert plain_json.parse("[" * 60 + "]" * 60)
