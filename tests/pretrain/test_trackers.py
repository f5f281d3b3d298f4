"""Curves in TensorBoard, Weights & Biases and MLflow, read back by these libraries."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from unittest import mock

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from sad_hpc.pretrain import trackers
from sad_hpc.pretrain.metrics import MetricsLog
from sad_hpc.pretrain.trackers import KINDS, Trackers
from tests.patience import SOON

ALL = ["tensorboard", "wandb", "mlflow"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("WANDB_MODE", "MLFLOW_TRACKING_URI"):
        monkeypatch.delenv(name, raising=False)
    folder = tmp_path / "runs/tiny/checkpoints/sad-seed0-0123456789ab"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps({"pretrain": {"epochs": 2}, "seed": 0}))
    return folder


def line(step: int, loss: float) -> dict[str, float]:
    rest = {"train_loss": 1.0, "holdout_accuracy": 0.5, "tokens_per_second": 1e3}
    return {"epoch": step // 10, "step": step, "holdout_loss": loss, **rest}


def test_each_library_gets_every_point_and_a_resumed_training_is_the_same_run(folder: Path):
    for step, loss in ((10, 2.0), (20, 1.5)):  # two starts
        log = MetricsLog(folder, step - 10, ALL)
        log.write(line(step, loss))
        log.close()

    board = EventAccumulator(str(folder / "tensorboard")).Reload()
    assert [(s.step, s.value) for s in board.Scalars("holdout_loss")] == [(10, 2.0), (20, 1.5)]

    client = pytest.importorskip("mlflow").MlflowClient((folder / "mlflow").as_uri())
    (run,) = client.search_runs([client.get_experiment_by_name("tiny").experiment_id])
    points = client.get_metric_history(run.info.run_id, "holdout_loss")
    assert [(p.step, p.value) for p in points] == [(10, 2.0), (20, 1.5)]
    assert run.data.params == {"pretrain.epochs": "2", "seed": "0"}
    assert run.info.run_name == folder.name

    pytest.importorskip("wandb")
    files = sorted(folder.glob("wandb/offline-run-*/run-*.wandb"))
    assert len(files) == 2 and {file.name for file in files} == {f"run-{folder.name}.wandb"}
    assert all(b"holdout_loss" in file.read_bytes() for file in files)
    assert "epoch" not in run.data.metrics


def test_a_line_is_on_the_disk_before_the_checkpoint_that_follows(folder: Path, monkeypatch):
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda number: synced.append(os.fstat(number).st_ino))
    log = MetricsLog(folder, 0, [])
    synced.clear()
    log.write(line(10, 2.0))
    assert synced == [(folder / "metrics.jsonl").stat().st_ino]


def test_a_tracker_that_fails_ends_nothing(folder: Path, monkeypatch, capsys):
    class Broken:
        def __init__(self, folder: Path, step: int) -> None:
            self.points = 0

        def write(self, metrics: object, step: int) -> None:
            self.points += 1
            raise ConnectionError("the server\nis gone")

        def close(self) -> None:
            raise AssertionError("it was left out")

    monkeypatch.setitem(KINDS, "wandb", Broken)
    log = MetricsLog(folder, 0, ["wandb", "tensorboard"])
    log.write(line(10, 2.0))
    log.write(line(20, 1.5))
    log.close()
    said = capsys.readouterr().err.splitlines()
    assert said == ["wandb is disabled from here on: the server is gone"]
    board = EventAccumulator(str(folder / "tensorboard")).Reload()
    assert len(board.Scalars("holdout_loss")) == 2
    assert len((folder / "metrics.jsonl").read_text().splitlines()) == 2


@pytest.mark.parametrize("name", sorted(trackers.INSTALL))
def test_a_library_that_is_missing_is_named(name: str, folder: Path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, name, None)
    Trackers([name], folder, 0).write({"loss": 1.0}, 1)
    said = capsys.readouterr().err
    assert said.startswith(f"{name} is disabled from here on: ") and f"sad_hpc[{name}]" in said


BESIDE_A_SILENT_SERVER = """
import sys
from pathlib import Path
from sad_hpc.pretrain import trackers
for variables in trackers.PATIENCE.values():
    variables.update(dict.fromkeys(variables, "1"))
found = trackers.Trackers([sys.argv[1]], Path(sys.argv[2]), 0)
found.write({"loss": 1.0}, 1)
found.close()
"""


@pytest.mark.slow
@pytest.mark.parametrize("listens", [False, True])
@pytest.mark.parametrize("name", sorted(trackers.PATIENCE))
def test_a_server_that_does_not_answer_holds_no_training(name: str, listens: bool, folder: Path):
    """By its own defaults MLflow takes from four minutes to a quarter of an hour."""
    pytest.importorskip(name)
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        if listens:  # and answers nothing
            server.listen()
        address = f"http://127.0.0.1:{server.getsockname()[1]}"
        wandb = {"WANDB_MODE": "online", "WANDB_BASE_URL": address, "WANDB_API_KEY": "a" * 40}
        ended = subprocess.run(
            [sys.executable, "-c", BESIDE_A_SILENT_SERVER, name, str(folder)],
            env=os.environ | wandb | {"MLFLOW_TRACKING_URI": address},
            capture_output=True,
            text=True,
            timeout=5 * SOON,
        )
    assert ended.returncode == 0
    assert f"{name} is disabled from here on: " in ended.stderr


@pytest.mark.parametrize("name", sorted(trackers.PATIENCE))
def test_the_users_own_patience_wins(name: str, folder: Path, monkeypatch):
    first, second = trackers.PATIENCE[name]
    with mock.patch.dict(os.environ, {first: "7"}):
        os.environ.pop(second, None)
        monkeypatch.setitem(sys.modules, name, None)  # left out, after its variables are set
        Trackers([name], folder, 0)
        assert os.environ[first] == "7"
        assert os.environ[second] == trackers.PATIENCE[name][second]
    assert all(int(value) <= 30 for value in trackers.PATIENCE[name].values())
