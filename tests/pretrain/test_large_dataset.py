"""A training on more tasks than its ranks may hold: under a limit of memory, and killed twice."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch

from sad_hpc.collect.throughput import peak_memory
from sad_hpc.experiment.load import load_experiment
from sad_hpc.storage.run import Run
from tests.conftest import with_data_of

pytestmark = [pytest.mark.stress, pytest.mark.faults]

BIN = Path(sys.executable).parent
CONFIG = Path(__file__).parents[2] / "configs/paper/darkroom.yaml"
TASKS = 10_000_000
OVERRIDES = [
    *(f"data.tasks={TASKS}", "data.block_tasks=16384", "model.layers=1", "model.dropout=0.0"),
    *("pretrain.window_blocks=32", "pretrain.epochs=1", "pretrain.batch_size=512"),
    "pretrain.checkpoint_minutes=1",
]
LIMIT = 2 * 2**30
"""Bytes of a rank."""
LIMITED = ["sh", "-c", f'ulimit -d {LIMIT // 1024} && exec "$@"', "sh"]
KILLS = [5000, 10000]
"""Steps of about 15,000."""


def test_two_ranks_that_are_killed_twice_train_the_same_weights(
    tmp_path: Path, figures: dict[str, Any]
) -> None:
    experiment = load_experiment(CONFIG, OVERRIDES)
    calm = Run(experiment, tmp_path / "calm")
    assert start("collect", calm).wait() == 0
    struck = with_data_of(calm, Run(experiment, tmp_path / "struck"))
    for step in KILLS:
        train_until(step, struck)
    peaks = [train(run) for run in (struck, calm)]
    figures["tasks"] = TASKS
    figures["peak MiB of a rank"] = round(max(peaks) / 2**20)
    assert max(peaks) < LIMIT
    weights, undisturbed = (
        torch.load(run.checkpoint("SAD", 0).path / "weights.pt", weights_only=True)["state"]
        for run in (struck, calm)
    )
    assert all(torch.equal(weights[name], undisturbed[name]) for name in undisturbed)


def train_until(step: int, run: Run) -> None:
    """Train, and kill both ranks once a checkpoint of this step or a later one is there."""
    index = run.checkpoint("SAD", 0).path / "state/checkpoints.json"
    process = start("pretrain", run, "--row", "SAD", "--seed", "0")
    saved = 0
    while saved < step:
        time.sleep(1)
        assert process.poll() is None
        if index.exists():
            saved = int(json.loads(index.read_text())[0]["tag"].removeprefix("step-"))
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def train(run: Run) -> int:
    """Train to the end; return the largest peak memory of a process in bytes."""
    process = start("pretrain", run, "--row", "SAD", "--seed", "0")
    peak = 0
    while process.poll() is None:
        time.sleep(1)
        for rank in psutil.Process(process.pid).children(recursive=True):
            with contextlib.suppress(OSError):  # it has just ended
                peak = max(peak, peak_memory(rank.pid))
    assert process.returncode == 0
    return peak


def start(stage: str, run: Run, *arguments: str) -> "subprocess.Popen[bytes]":
    """Start a stage on two ranks, each with a limit of memory."""
    command = [BIN / "mpiexec", "-n", "2", BIN / "sad-hpc", stage, CONFIG, *OVERRIDES]
    command += ["--runs", run.runs, *arguments]
    return subprocess.Popen([*LIMITED, *map(str, command)], start_new_session=True)
