"""A training that the kernel kills for memory, on one machine without Slurm."""

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import torch

from sad_hpc.experiment.load import load_experiment
from sad_hpc.pretrain.stage import pretrain
from sad_hpc.storage.run import Run
from tests.conftest import TINY, clockless_metrics, with_data_of
from tests.memory import MemoryShare, memory_share
from tests.patience import HUNG

pytestmark = pytest.mark.faults

SAD_HPC = str(Path(sys.executable).parent / "sad-hpc")
OVERRIDES = [
    *("rows=[SAD]", "seeds=[0]", "pretrain.batch_size=8", "pretrain.epochs=10"),
    *("pretrain.checkpoint_minutes=0.005", "pretrain.log_seconds=0.1"),
]


@pytest.fixture
def share() -> Iterator[MemoryShare]:
    with memory_share() as share:
        yield share
        for process in map(psutil.Process, share.members):
            process.kill()
            process.wait(HUNG)


@pytest.mark.stress
def test_the_launcher_names_the_kernels_kill_and_the_next_launch_goes_on(
    tiny_run: Run, tmp_path: Path, share: MemoryShare
) -> None:
    struck, calm = (
        with_data_of(tiny_run, Run(load_experiment(TINY, OVERRIDES), tmp_path / name))
        for name in ("struck", "calm")
    )
    folders = [run.checkpoint("SAD", 0) for run in (struck, calm)]
    checkpoints = folders[0].path / "state/checkpoints.json"
    command = [SAD_HPC, "launch", str(TINY), *OVERRIDES, "--runs", str(struck.runs)]
    command += ["--results", str(tmp_path / "results")]
    launcher = subprocess.Popen([*share.inside, *command], stdout=subprocess.PIPE, text=True)
    try:
        while not checkpoints.exists():
            assert launcher.poll() is None
            time.sleep(0.01)
        share.exhaust()
        said, _ = launcher.communicate(timeout=HUNG)
    finally:
        launcher.kill()
        launcher.wait()
    assert launcher.returncode == 1
    assert "rank 0 of 1 was killed by SIGKILL; possibly out of memory. Launch again" in said
    assert "evaluate not started because pretrain" in said
    assert folders[0].done is None and checkpoints.exists()
    again = subprocess.run(command, capture_output=True, text=True, timeout=HUNG)
    assert again.returncode == 0, again.stdout
    pretrain(calm, "SAD", 0)
    weights = [torch.load(f.path / "weights.pt", weights_only=True)["state"] for f in folders]
    for name, weight in weights[0].items():
        assert torch.equal(weight, weights[1][name]), name
    assert clockless_metrics(folders[0].path) == clockless_metrics(folders[1].path)
