"""Modules of users that differ between the ranks of a collection."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

BIN = Path(sys.executable).parent

SECONDS = 300
"""A rank that waits for another without end is seen by this; the commands take a tenth of it."""

FAILS_ON_A_RANK = """
import os
if os.environ["PMI_RANK"] == "1":
    raise RuntimeError("no licence on this node")
from tests.tasks.own_environments import *
"""

CONFIG = """
name: uneven
task:
  family: gymnasium
  env: uneven:Walk-v0
  horizon: 5
  attributes: {luck: {integers: [0, 199]}}
data: {tasks: 60, block_tasks: 10, trust_horizon: 2}
rows: [SAD]
pretrain: {epochs: 1, holdout_tasks: 4, batch_size: 8}
evaluate: {tasks: 12}
"""


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{os.getcwd()}")
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "uneven.yaml"
    path.write_text(CONFIG)
    return path


def ended(*command: str | Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)


@pytest.mark.parametrize("command", ["collect", "launch"])
def test_a_module_that_fails_on_one_rank_ends_all_of_them(
    command: str, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (config.parent / "uneven.py").write_text(FAILS_ON_A_RANK)
    monkeypatch.setenv("PMI_RANK", "0")  # of the launcher; mpiexec sets that of the ranks
    if command == "collect":
        done = ended(BIN / "mpiexec", "-n", "2", BIN / "sad-hpc", "collect", config)
    else:
        done = ended(BIN / "sad-hpc", "launch", config, "cluster.collect.ranks=2")
    assert done.returncode != 0
    assert "uneven.py, line 4: no licence on this node" in done.stdout + done.stderr


DRAWS_AT_IMPORT = """
import random
from tests.tasks.own_environments import *
Walk.noise = random.random()
"""


def test_numbers_drawn_at_import_are_refused_between_ranks(config: Path) -> None:
    (config.parent / "uneven.py").write_text(DRAWS_AT_IMPORT)
    done = ended(BIN / "mpiexec", "-n", "2", BIN / "sad-hpc", "collect", config)
    assert done.returncode != 0 and "Traceback" not in done.stderr
    assert "the environment of rank 1 differs from that of rank 0" in done.stderr
    assert not list((config.parent / "runs").rglob("shard-*"))


@pytest.mark.slow
def test_numbers_drawn_at_import_are_refused_between_commands(config: Path) -> None:
    (config.parent / "uneven.py").write_text(DRAWS_AT_IMPORT)
    assert ended(BIN / "sad-hpc", "collect", config).returncode == 0
    for command in (["collect"], ["pretrain"]):
        done = ended(BIN / "sad-hpc", *command, config)
        assert done.returncode == 1 and "Traceback" not in done.stderr
        assert "data of another environment" in done.stderr
