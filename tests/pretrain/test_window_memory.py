"""The memory of a training in windows, of a dataset of ten times the size."""

import subprocess
import sys
from pathlib import Path

import pytest

from sad_hpc.collect.stage import collect
from sad_hpc.experiment.load import load_experiment
from sad_hpc.storage.run import Run

CONFIG = Path(__file__).parents[2] / "configs/paper/gaussian_bandit.yaml"
SMALL = [
    "data.tasks=40000",
    "data.block_tasks=256",
    "evaluate.tasks=4",
    "pretrain.holdout_tasks=64",
]

EPOCH = """
import resource, sys, torch
from pathlib import Path
from sad_hpc.experiment.load import load_experiment
from sad_hpc.parallel.ranks import torch_process
from sad_hpc.pretrain import training_columns
from sad_hpc.pretrain.batches import make_batches
from sad_hpc.pretrain.engine import join_process_group
from sad_hpc.pretrain.training_columns import TrainingColumns
from sad_hpc.storage.run import Run

training_columns.SHARED_BYTES = 2**60  # memory of the process alone
join_process_group(torch_process())
run = Run(load_experiment(Path(sys.argv[1]), sys.argv[3:]), Path(sys.argv[2]))
config, source = run.experiment.optimization("SAD"), TrainingColumns(run, "SAD")
rows = source.read_parts(training_columns.first_parts(source.manifest, 1000))
dataset = 32 * sum(array.nbytes for array in rows.values())  # 32,000 training tasks


def make():
    return make_batches(run, "SAD", 0, config, torch.device("cpu"))[0]


if config.window_blocks:  # threads and two windows
    batches = make()
    batches.at(0)
status = Path("/proc/self/status").read_text()
(used,) = [int(line.split()[1]) * 1024 for line in status.splitlines() if "VmData" in line]
resource.setrlimit(resource.RLIMIT_DATA, (used + dataset // 10,) * 2)
if not config.window_blocks:
    batches = make()
for step in range(batches.per_epoch):
    batches.at(step)
print("an epoch")
"""


def epoch(run: Run, *overrides: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-c", EPOCH, CONFIG, run.runs, *SMALL, *overrides]
    return subprocess.run(list(map(str, command)), capture_output=True, text=True)


@pytest.mark.slow
def test_an_epoch_needs_a_tenth_of_the_datasets_memory(tmp_path: Path):
    run = Run(load_experiment(CONFIG, SMALL), tmp_path)
    collect(run)
    windows = epoch(run, "pretrain.window_blocks=2")
    assert windows.stdout.endswith("an epoch\n"), windows.stderr
    whole = epoch(run)
    assert "an epoch" not in whole.stdout and "MemoryError" in whole.stderr
