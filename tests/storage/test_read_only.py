"""A disk that turns read-only during a stage: an error in one line, and no loss."""

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from sad_hpc.collect.stage import collect
from sad_hpc.dataset.schema import Manifest
from sad_hpc.experiment.load import load_experiment
from sad_hpc.pretrain.stage import pretrain
from sad_hpc.storage.json_files import read_json
from sad_hpc.storage.run import Run
from sad_hpc.storage.stage_folder import StageFolder
from tests.conftest import TINY, clockless_metrics, with_data_of
from tests.disk import Disk, ext4
from tests.patience import HUNG

# Beside much other work a stage may end before the disk fails.
pytestmark = [pytest.mark.faults, pytest.mark.stress]

SAD_HPC = Path(sys.executable).parent / "sad-hpc"
COLLECT = ["data.tasks=3000", "data.block_tasks=10"]
# Between two ends of an epoch a training writes nothing but checkpoints.
PRETRAIN = [
    *("rows=[SAD]", "seeds=[0]", "data.tasks=9000", "data.block_tasks=900"),
    *("pretrain.batch_size=4", "pretrain.epochs=1", "pretrain.log_seconds=1000"),
    "pretrain.checkpoint_minutes=0.005",
]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    with ext4(tmp_path) as disk:
        yield disk


def begin(disk: Disk, stage: str, overrides: list[str]) -> "subprocess.Popen[str]":
    command = [SAD_HPC, stage, TINY, *overrides, "--runs", disk.folder / "runs"]
    return subprocess.Popen(
        [*disk.inside, *map(str, command)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def saved(folder: StageFolder) -> int:
    """Return the number of shards, or of a training's steps, on the disk."""
    if folder.stage == "collect":
        return len(list(folder.path.glob("train/shard-*.h5")))
    index = read_json(folder.path / "state/checkpoints.json") or [{"tag": "step-0"}]
    return int(index[0]["tag"].removeprefix("step-"))


def wait_for_more(process: "subprocess.Popen[str]", folder: StageFolder, than: int) -> int:
    """Wait until more is saved than before, and return the amount."""
    while (now := saved(folder)) <= than:
        assert process.poll() is None, process.communicate()
        time.sleep(0.005)
    return now


def strike(disk: Disk, folder: StageFolder, overrides: list[str], enough: int) -> None:
    """Has the disk fail in the middle of a stage, and the stage go on when it is repaired."""
    process = begin(disk, folder.stage, overrides)
    try:
        kept = wait_for_more(process, folder, enough)
        # A writer of a further one has given those before it to the disk.
        wait_for_more(process, folder, kept)
        disk.fail()
        _, said = process.communicate(timeout=HUNG)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 1 and "Traceback" not in said, said
    line = said.splitlines()[-1]
    assert line.startswith(f"sad-hpc: error: cannot write {disk.folder}/"), said
    # What was on its way to the disk has failed, and nothing more can be written.
    assert "Input/output error; " in line or "Read-only file system; " in line
    assert "which reports an error, or" in line or "; mount its file system" in line
    assert folder.done is None
    disk.repair()
    assert saved(folder) >= kept, "what was finished was lost"
    process = begin(disk, folder.stage, overrides)
    _, said = process.communicate(timeout=HUNG)
    assert process.returncode == 0, said


def test_collection_goes_on_when_the_disk_is_repaired(disk: Disk, tmp_path: Path) -> None:
    experiment = load_experiment(TINY, COLLECT)
    struck = Run(experiment, disk.seen_from_outside / "runs")
    calm = Run(experiment, tmp_path / "calm")
    strike(disk, struck.data(), COLLECT, enough=50)
    collect(calm)
    for split in ("train", "test"):
        digests = [Manifest.load(run.data().path / split).digest for run in (struck, calm)]
        assert digests[0] == digests[1]


def test_training_goes_on_when_the_disk_is_repaired(disk: Disk, tmp_path: Path) -> None:
    experiment = load_experiment(TINY, PRETRAIN)
    calm = Run(experiment, tmp_path / "calm")
    collect(calm)
    struck = with_data_of(calm, Run(experiment, disk.seen_from_outside / "runs"))
    folders = [run.checkpoint("SAD", 0) for run in (struck, calm)]
    strike(disk, folders[0], PRETRAIN, enough=100)
    pretrain(calm, "SAD", 0)
    weights = [torch.load(f.path / "weights.pt", weights_only=True)["state"] for f in folders]
    for name, weight in weights[0].items():
        assert torch.equal(weight, weights[1][name]), name
    assert clockless_metrics(folders[0].path) == clockless_metrics(folders[1].path)


WRITE = """
import sys
from pathlib import Path
from sad_hpc.storage.json_files import write_json
write_json(Path(sys.argv[1]), 7)
"""


def test_a_name_that_was_given_outlives_the_disks_error(disk: Disk) -> None:
    """Even where no later write has taken it to the disk along with its own."""
    path = disk.folder / "folder/number.json"
    disk.run(sys.executable, "-c", WRITE, str(path))
    disk.fail()
    disk.repair()
    assert read_json(disk.seen_from_outside / path.relative_to(disk.folder)) == 7
