"""Preempted and timed-out jobs on a real Slurm: they requeue themselves and lose no work."""

import subprocess
from pathlib import Path

import pytest

from tests.cluster.pipeline import SAD_HPC, Pipeline

pytestmark = pytest.mark.cluster

HITS = {
    "signal": ["scancel", "--signal=USR2"],
    "terminate": ["scancel", "--signal=TERM"],
    "requeue": ["scontrol", "requeue"],
    # A job that needs all nodes, named after its victim.
    "preempt": ["sbatch", "--partition=urgent", "--nodes=4", "--exclusive", "--wrap=true", "-J"],
}
"""Commands that end with a job's id."""


@pytest.mark.parametrize(
    "stage, hit",
    [
        ("pretrain", "preempt"),
        *(
            pytest.param(stage, hit, marks=pytest.mark.stress)
            for hit in HITS
            for stage in ("collect", "pretrain", "evaluate")
            if (stage, hit) != ("pretrain", "preempt")
        ),
        pytest.param("aggregate", "requeue", marks=pytest.mark.stress),
    ],
)
def test_a_job_that_is_hit_queues_itself_again_and_ends_as_if_undisturbed(
    pipeline: Pipeline, undisturbed: Pipeline, tmp_path: Path, stage: str, hit: str
) -> None:
    launcher = pipeline.launch("--wait")
    pipeline.wait_until_half_done(stage)
    job = pipeline.job(stage)
    subprocess.run([*HITS[hit], job], env=pipeline.env, cwd=tmp_path, check=True)
    pipeline.finish(launcher)
    assert "Restarts=1" in pipeline.shown(stage)
    if hit != "requeue":
        log = (pipeline.run.logs / stage / f"{job}_0_log.out").read_text()
        assert "finished work is saved" in log
    pipeline.same_as(undisturbed)


@pytest.mark.stress
def test_a_cancelled_run_goes_on(pipeline: Pipeline, undisturbed: Pipeline) -> None:
    launcher = pipeline.launch()
    pipeline.wait_until_half_done("pretrain")
    pipeline.finish(launcher)
    command = [str(SAD_HPC), "cancel", str(pipeline.run.path)]
    said = subprocess.check_output(command, env=pipeline.env, text=True)
    assert "launch again to continue" in said and pipeline.job("aggregate") in said
    assert not pipeline.step("pretrain").complete
    pipeline.finish()
    pipeline.same_as(undisturbed)


@pytest.mark.stress
def test_a_stage_longer_than_its_time_limit_is_a_chain_of_jobs(
    dev_cluster: dict[str, str], tmp_path: Path
) -> None:
    """Two minutes, of which Slurm may take the last one and a half away with its early signal."""
    calm, chain = (
        Pipeline(dev_cluster, tmp_path / name, "data.tasks=9000", "pretrain.epochs=28", *limit)
        for name, limit in (("calm", []), ("chain", ["cluster.pretrain.minutes=2"]))
    )
    calm.finish()
    chain.finish()
    assert int(chain.shown("pretrain").split("Restarts=")[1].split()[0]) >= 1
    assert "Restarts=0" in calm.shown("pretrain")
    chain.same_as(calm)
