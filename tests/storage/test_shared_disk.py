"""A slow network disk that shows new and replaced files late."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from sad_hpc.aggregate.stage import aggregate
from sad_hpc.dataset.schema import Manifest
from sad_hpc.evaluate.stage import evaluate
from sad_hpc.experiment.load import load_experiment
from sad_hpc.pretrain.stage import pretrain
from sad_hpc.storage.run import Run
from tests.conftest import ROOT, TINY, clockless_metrics, with_data_of
from tests.patience import HUNG
from tests.preload import compiled

pytestmark = [pytest.mark.slow, pytest.mark.faults]

SAD_HPC = str(Path(sys.executable).parent / "sad-hpc")
SOURCE = ROOT / "tests/shared_disk.c"
OVERRIDES = ["rows=[SAD]", "seeds=[0]"]


@pytest.fixture(scope="module")
def calm(tiny_run: Run, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run, and its tables, on a disk of this machine's own."""
    folder = tmp_path_factory.mktemp("calm")
    run = with_data_of(tiny_run, Run(load_experiment(TINY, OVERRIDES), folder / "runs"))
    pretrain(run, "SAD", 0)
    evaluate(run, "SAD", 0)
    aggregate(run, folder / "results")
    return run


@pytest.mark.parametrize(
    "fault", ["late", *(pytest.param(each, marks=pytest.mark.stress) for each in ("stale", "slow"))]
)
def test_the_pipeline_comes_to_the_same_tables(fault: str, tmp_path: Path, calm: Run) -> None:
    """The library shared_disk.c makes each of these faults."""
    library = compiled(SOURCE.read_text(), tmp_path)
    env = os.environ | {"LD_PRELOAD": str(library), "DISK_FAULT": fault}
    env["DISK_FOLDER"] = str(tmp_path / "shared")
    struck = Run(calm.experiment, tmp_path / "shared/runs")
    results = tmp_path / "shared/results"
    command = [SAD_HPC, "launch", str(TINY), *OVERRIDES, "cluster.collect.ranks=2"]
    command += ["--runs", str(struck.runs), "--results", str(results)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=HUNG)
    assert done.returncode == 0, done.stdout + done.stderr
    digests = [Manifest.load(run.data().path / "train").digest for run in (struck, calm)]
    assert digests[0] == digests[1]
    folders = [run.checkpoint("SAD", 0).path for run in (struck, calm)]
    weights = [torch.load(f / "weights.pt", weights_only=True)["state"] for f in folders]
    for name, weight in weights[0].items():
        assert torch.equal(weight, weights[1][name]), name
    assert clockless_metrics(folders[0]) == clockless_metrics(folders[1])
    tables = [each / "tiny/summary.csv" for each in (results, calm.runs.parent / "results")]
    assert tables[0].read_bytes() == tables[1].read_bytes()
