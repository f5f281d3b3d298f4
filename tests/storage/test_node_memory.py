"""Arrays that processes of a node share."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
import torch

from sad_hpc.errors import UserError
from sad_hpc.pretrain import training_columns
from sad_hpc.pretrain.training_columns import TrainingColumns
from sad_hpc.storage.node_memory import Allocate, Arrays, shared_arrays
from sad_hpc.storage.run import Run

SIZE = 16 * 2**20

READER = """
import sys
from sad_hpc.storage.node_memory import shared_arrays
def refuse(allocate):
    raise SystemExit("they are made again")
found = shared_arrays("numbers", refuse)
sums = {name: int(array.sum()) for name, array in found.items()}
print(sums["ones"], found["ones"].shape, found["halves"].dtype, found["none"].shape, sep="|")
found["ones"][:] = 7
print("changed", flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)


def make(allocate: Allocate) -> Arrays:
    ones = allocate("ones", (SIZE // 4, 4), np.dtype(np.uint8))
    ones[:] = 1
    halves = allocate("halves", (3,), np.dtype(np.float16))
    halves[:] = 0.5
    return {"ones": ones, "halves": halves, "none": allocate("none", (2, 0), np.dtype(np.int8))}


def reader() -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", READER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def test_a_second_process_has_the_same_arrays_without_a_copy():
    mine = shared_arrays("numbers", make)
    process = reader()
    assert process.stdout is not None
    expected = [str(SIZE), f"({SIZE // 4}, 4)", "float16", "(2, 0)\n"]
    assert process.stdout.readline().split("|") == expected
    assert process.stdout.readline() == "changed\n"
    assert (mine["ones"] == 1).all(), "writes of another process are its own"
    process.communicate()
    assert (shared_arrays("numbers", make)["ones"] == 1).all()


def test_arrays_of_a_process_that_has_ended_are_made_again():
    code = "import test_node_memory as t; t.shared_arrays('numbers', t.make)"
    subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parent, check=True)
    calls = []
    shared_arrays("numbers", lambda allocate: calls.append(1) or make(allocate))
    assert calls == [1]


def test_keys_have_contents_of_their_own():
    shared_arrays("numbers", make)
    calls = []
    shared_arrays("others", lambda allocate: calls.append(1) or make(allocate))
    assert calls == [1]


def test_the_memory_of_an_earlier_key_is_freed():
    def held_files() -> int:
        files = Path("/proc/self/fd").iterdir()
        return sum("memfd:ones" in os.readlink(file) for file in files if file.is_symlink())

    for key in ("numbers", "others", "more"):
        shared_arrays(key, make)
        assert held_files() == 1
    calls = []
    assert (shared_arrays("numbers", lambda a: calls.append(1) or make(a))["ones"] == 1).all()
    assert calls == [1]


def test_a_folder_that_others_can_change_is_refused(tmp_path: Path):
    shared_arrays("numbers", make)
    (folder,) = tmp_path.glob("sad_hpc-node-*")
    folder.chmod(0o777)
    with pytest.raises(UserError, match="others can write to it"):
        shared_arrays("numbers", make)


def test_a_large_dataset_is_read_once_on_a_node(tiny_run: Run, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(training_columns, "SHARED_BYTES", 0)
    whole = TrainingColumns(tiny_run, "DIT").read()
    monkeypatch.setattr(training_columns, "read_parts", None)
    again = TrainingColumns(tiny_run, "DIT").read()
    assert whole.keys() == again.keys()
    for name, array in whole.items():
        assert (array == again[name]).all() and array.dtype == again[name].dtype
        torch.from_numpy(array)
