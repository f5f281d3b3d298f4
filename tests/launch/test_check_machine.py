"""`sad-hpc doctor`: its checks, and the fixes that it prints."""

import errno
import fcntl
from pathlib import Path
from unittest import mock

import pytest

from sad_hpc.launch import check_machine
from sad_hpc.launch.cluster import ClusterConfig, load_cluster
from tests.conftest import ROOT

pytestmark = pytest.mark.slow


def test_slurm_is_only_needed_by_slurm_clusters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert check_machine._slurm(load_cluster("local", []))[0] == "skip"
    verdict, detail = check_machine._slurm(load_cluster("slurm", []))
    assert verdict == "miss" and "dev_cluster.sh up" in detail


def test_mpi_sees_two_ranks() -> None:
    assert check_machine._mpi()[0] == "ok"


def test_folder_checks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = tmp_path / "not" / "yet"
    assert check_machine._locking(runs, ClusterConfig())[0] == "ok"
    monkeypatch.setattr(check_machine, "FREE_DISK_GIB", 10**9)
    verdict, detail = check_machine._disk(runs)
    assert verdict == "miss" and str(tmp_path) in detail
    assert not runs.exists()


def test_a_folder_without_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fcntl, "flock", mock.Mock(side_effect=OSError(errno.ENOLCK, "No locks")))
    verdict, detail = check_machine._locking(tmp_path, load_cluster("slurm", []))
    assert verdict == "miss" and "cluster.hdf5_file_locking=false" in detail
    told = load_cluster("slurm", ["hdf5_file_locking=false"])
    assert check_machine._locking(tmp_path, told)[0] == "ok"


@pytest.mark.parametrize("stream", [1, 2])  # the second one until Slurm 21.08
@pytest.mark.parametrize("offered, verdict", [("none\n\tpmi2", "ok"), ("none\n\tpmix", "miss")])
def test_srun_must_offer_the_mpi_type(
    offered: str, verdict: str, stream: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    srun = tmp_path / "srun"
    srun.write_text(f'#!/bin/sh\nprintf "MPI plugin types are...\n\t{offered}\n" >&{stream}\n')
    srun.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    outcome = check_machine._slurm_mpi(load_cluster("slurm", []))
    assert outcome[0] == verdict and "pmi2" in outcome[1]
    assert check_machine._slurm_mpi(load_cluster("local", []))[0] == "skip"


def test_exit_code_and_text(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for name in ("_mpi", "_deepspeed", "_compiler", "_gl", "_shared_memory"):
        monkeypatch.setattr(check_machine, name, lambda: ("ok", "fine"))
    monkeypatch.setattr(check_machine, "_gpu", lambda cluster: ("miss", "buy one"))
    assert check_machine.check_machine(ClusterConfig(), tmp_path) == 1
    printed = capsys.readouterr().out
    assert "miss  GPU             buy one\n" in printed and "missing: GPU" in printed


def test_a_config_is_tried(tmp_path: Path) -> None:
    config = tmp_path / "mine.yaml"
    config.write_text("""
name: mine
task: {family: gymnasium, env: CartPole-v1, horizon: 20, attributes: {gravity: {uniform: [5, 15]}}}
data: {tasks: 7200, trust_horizon: 5, return_threshold: 1}
rows: [SAD]
seeds: [0, 1]
seeds_vary: [training, data]
pretrain: {epochs: 1}
""")
    verdict, detail = check_machine._config(config)
    assert detail.count("data: ") == 1, "the datasets of two seeds cost the same"
    assert "each of the 2 seeds has data of its own" in detail
    assert verdict == "ok" and "4 observed numbers, 2 actions" in detail
    assert "copied by deepcopy" in detail and "of a core for 7,200 tasks" in detail
    assert "at least data.return_threshold=1 get labels (null: all)" in detail
    longer = "[SAD, {name: SAD+, method: SAD, set: {data.trust_horizon: 9}}]"
    config.write_text(config.read_text().replace("[SAD]", longer))
    verdict, detail = check_machine._config(config)
    assert verdict == "ok" and "data of SAD: " in detail and "data of SAD+: " in detail
    config.write_text(config.read_text().replace("gravity", "gravitas"))
    verdict, detail = check_machine._config(config)
    assert verdict == "miss" and "no attribute gravitas; the nearest: gravity" in detail


def test_a_table_is_tried(tmp_path: Path) -> None:
    config = tmp_path / "lake.yaml"
    config.write_text("""
name: lake
task: {family: gymnasium_table, env: FrozenLake-v1, states: [4, 4], horizon: 20, rewards: sparse,
       vary: {is_slippery: {choice: [true, false]}}, test_share: 0.5}
data: {tasks: 8000, trust_horizon: 5}
rows: [SAD]
pretrain: {epochs: 1}
""")
    verdict, detail = check_machine._config(config)
    assert verdict == "ok", detail
    assert detail.startswith("frozenlake_v1: 4 actions; 1 tasks for train; 1 tasks for test; ")
    assert "46 steps; fewer than 600 may be too few: raise data.tasks" in detail


def test_a_config_that_plays_the_models_of_another_trains_nothing() -> None:
    verdict, detail = check_machine._config(ROOT / "configs/bernoulli_bandit.yaml")
    assert verdict == "ok"
    assert detail.endswith("training: none, another experiment's models are evaluated")


def own_environment(name: str, folder: Path) -> Path:
    """A config of one of tests/tasks/own_environments.py."""
    config = folder / "own.yaml"
    config.write_text(f"""
name: own
task: {{family: gymnasium, env: "tests.tasks.own_environments:{name}-v0", horizon: 10,
       attributes: {{noise: {{uniform: [0, 1]}}}}}}
data: {{tasks: 7200, trust_horizon: 5}}
rows: [SAD]
pretrain: {{epochs: 1}}
""")
    return config


@pytest.fixture
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


def test_an_environment_that_never_answers_is_told_by_its_line(
    importable: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seconds in (15, 150):  # a busy machine needs longer to reach the step
        monkeypatch.setattr(check_machine, "TRIAL_SECONDS", seconds)
        verdict, detail = check_machine._config(own_environment("Stuck", tmp_path))
        if "in step" in detail:
            break
    assert verdict == "miss"
    assert "own_environments.py" in detail and "in step" in detail


def test_what_an_environment_prints_is_not_shown_and_equal_rewards_are_told(
    importable: None, tmp_path: Path
) -> None:
    verdict, detail = check_machine._config(own_environment("Chatty", tmp_path))
    assert verdict == "ok" and "a step!" not in detail and len(detail.splitlines()) == 1
    assert "all rewards of 40 random transitions are -1" in detail
    assert "return_threshold" not in detail, "null labels all"


def test_a_table_whose_returns_miss_the_threshold_is_told(tmp_path: Path) -> None:
    config = tmp_path / "cliff.yaml"
    config.write_text("""
name: cliff
task: {family: gymnasium_table, env: CliffWalking-v1, states: [4, 12], horizon: 20,
       vary: {is_slippery: {choice: [true, false]}}, test_share: 0.5}
data: {tasks: 8000, trust_horizon: 5, return_threshold: 0}
rows: [SAD]
pretrain: {epochs: 1}
""")
    verdict, detail = check_machine._config(config)
    assert verdict == "miss" and "data.return_threshold=" in detail and "null accepts any" in detail
