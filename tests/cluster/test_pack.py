"""Two trainings, and two evaluations, that share a job of a real Slurm, each on a core."""

import subprocess
from pathlib import Path

import psutil
import pytest
import torch

from sad_hpc import api
from sad_hpc.launch.graph import Step, graph
from sad_hpc.launch.records import load_records
from sad_hpc.model.weights import WEIGHTS
from sad_hpc.storage.run import Run
from tests.cluster.pipeline import Pipeline, wait_until

pytestmark = pytest.mark.cluster

TWO = (
    *("rows=[DPT]", "seeds=[0, 1]", "data.tasks=2250", "data.block_tasks=500"),
    *("pretrain.epochs=20", "evaluate.tasks=40", "evaluate.online_episodes=3"),
    *("cluster.pretrain.ranks=1", "cluster.pretrain.pack=2", "cluster.evaluate.pack=2"),
)


@pytest.fixture
def packed(wide_node: dict[str, str], tmp_path: Path) -> Pipeline:
    return Pipeline(wide_node, tmp_path / "packed", *TWO)


def steps(pipeline: Pipeline, stage: str) -> list[Step]:
    return [step for step in graph(pipeline.run) if step.stage == stage]


def jobs(pipeline: Pipeline, stage: str) -> set[str]:
    records = load_records(pipeline.run)
    return {records[step.title].id for step in steps(pipeline, stage)}


def both_train(pipeline: Pipeline) -> bool:
    trainings = [step.folder for step in steps(pipeline, "pretrain")]
    assert not any(folder.done for folder in trainings), "one has ended before both trained"
    return all(folder.progress and folder.progress["done"] > 0 for folder in trainings)


def member(number: int) -> psutil.Process:
    """The process of a member of the only pack on this machine."""
    for process in psutil.process_iter(["cmdline"]):
        command = process.info["cmdline"] or []
        if "sad_hpc.launch.pack" in command and command[-1] == str(number) and command[0] != "sh":
            return process
    raise AssertionError(f"no member {number}")


def test_a_pack_that_is_told_to_stop_goes_on_and_ends_as_trainings_of_their_own(
    packed: Pipeline, tmp_path: Path
) -> None:
    launcher = packed.launch("--wait")
    wait_until(lambda: both_train(packed), "both train")
    cores = [member(number).cpu_affinity() for number in (0, 1)]
    job = packed.job("pretrain")
    subprocess.run(["scancel", "--signal=USR2", job], env=packed.env, check=True)
    packed.finish(launcher)
    assert "Restarts=1" in packed.shown("pretrain")
    assert jobs(packed, "pretrain") == {job} and len(jobs(packed, "evaluate")) == 1
    assert "NumCPUs=2" in packed.shown("pretrain")
    assert cores[0] != cores[1] or len(cores[0]) != 1
    for step in steps(packed, "pretrain"):
        log = Path(load_records(packed.run)[step.title].log)
        assert log.read_text().count("finished work is saved") == 1

    alone = Run(packed.run.experiment, tmp_path / "alone")
    api.collect(alone)
    api.train(alone)
    api.evaluate(alone)
    api.table(alone, tmp_path / "tables")
    for method, seed in alone.experiment.elements:
        weights = [
            torch.load(run.checkpoint(method, seed).path / WEIGHTS, weights_only=True)["state"]
            for run in (packed.run, alone)
        ]
        for name, weight in weights[0].items():
            assert torch.allclose(weight, weights[1][name], rtol=0, atol=1e-6), name
    tables = [folder / "tiny" / "summary.csv" for folder in (packed.results, tmp_path / "tables")]
    assert tables[0].read_bytes() == tables[1].read_bytes()


@pytest.mark.stress
def test_a_member_that_is_killed_takes_no_other_down(packed: Pipeline) -> None:
    launcher = packed.launch("--wait")
    wait_until(lambda: both_train(packed), "both train")
    member(0).kill()
    log = packed.finish(launcher, code=1)
    killed, other = steps(packed, "pretrain")
    assert other.complete and not killed.complete
    assert f"pretrain {killed.title.split()[-1]}: failed" in log
    job = packed.job("pretrain")
    own = (packed.run.logs / "pretrain" / f"{job}_0_log.out").read_text()
    assert f"{killed.title} was killed by SIGKILL" in own
    packed.finish()
    assert all(step.complete for step in graph(packed.run))
