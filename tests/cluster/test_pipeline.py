"""The whole pipeline on a real Slurm: sbatch slurm/full_pipeline.sh, from a job to the tables."""

import json
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sad_hpc.experiment.load import load_experiment
from sad_hpc.launch.cluster import load_cluster
from sad_hpc.launch.graph import STAGES
from sad_hpc.launch.records import load_records
from sad_hpc.storage.run import Run
from tests.cluster.pipeline import Pipeline, wait_until
from tests.conftest import ROOT, TINY

pytestmark = pytest.mark.cluster

BIN = Path(sys.executable).parent
Env = dict[str, str]


def submit_and_wait(env: Env, folder: Path, *arguments: str) -> tuple[int, str]:
    """Exit code and log of slurm/full_pipeline.sh."""
    folders = ["--runs", str(folder / "runs"), "--results", str(folder / "results")]
    return sbatch(env, folder / "driver.log", "slurm/full_pipeline.sh", *arguments, *folders)


def sbatch(env: Env, log: Path, *arguments: str) -> tuple[int, str]:
    """Exit code and log of a job, submitted from the repository's root.

    `sbatch --wait` looks after 2, 10 and 42 seconds, and then every 32.
    """
    log.unlink(missing_ok=True)
    command = ["sbatch", "--parsable", f"--output={log}", *arguments]
    job = subprocess.check_output(command, env=env, cwd=ROOT, text=True).strip()

    def ended() -> list[str]:
        """The exit codes of the job's elements, after all of them have ended."""
        shown = subprocess.check_output(["scontrol", "show", "job", job], env=env, text=True)
        states = set(re.findall(r"JobState=(\w+)", shown))
        codes = re.findall(r" ExitCode=(\d+):", shown)
        return [] if states & {"PENDING", "RUNNING", "COMPLETING"} else codes

    codes = wait_until(ended, f"job {job} ends", pause=0.5)
    return max(map(int, codes)), log.read_text()


def job_states(env: Env, ids: set[str]) -> dict[str, str]:
    """Return the state of each job and array element, after all of them have ended."""
    command = ["sacct", "--noheader", "--parsable2", "--allocations", "--format=JobID,State"]
    for _ in range(60):
        text = subprocess.check_output([*command, f"--jobs={','.join(ids)}"], env=env, text=True)
        states = dict(line.split("|") for line in text.splitlines())
        if not {"RUNNING", "COMPLETING", "PENDING"} & set(states.values()):
            break
        time.sleep(1)
    return states


def test_full_pipeline(dev_cluster: Env, tmp_path: Path) -> None:
    arguments = ["tests/configs/tiny.yaml", "seeds=[0]", "--wait"]
    code, log = submit_and_wait(dev_cluster, tmp_path, *arguments)
    assert code == 0, log
    assert (tmp_path / "results" / "tiny" / "summary.csv").exists()
    jobs = json.loads((tmp_path / "runs" / "tiny" / "jobs.json").read_text())
    states = job_states(dev_cluster, {job["id"].partition("_")[0] for job in jobs.values()})
    assert set(states) == {job["id"] for job in jobs.values()}
    assert set(states.values()) == {"COMPLETED"}, states

    # Again: everything is complete, nothing is submitted.
    code, log = submit_and_wait(dev_cluster, tmp_path, *arguments)
    assert code == 0, log
    assert json.loads((tmp_path / "runs" / "tiny" / "jobs.json").read_text()) == jobs
    assert f"{len(jobs)} of {len(jobs)} steps are complete and skipped" in log


def test_a_users_own_defaults_for_slurm_do_no_harm(dev_cluster: Env, tmp_path: Path) -> None:
    theirs = {"SBATCH_TIMELIMIT": "5", "SBATCH_NO_REQUEUE": "1", "SBATCH_EXPORT": "NONE"}
    theirs |= {"SBATCH_OPEN_MODE": "truncate", "SQUEUE_STATES": "FAILED", "SQUEUE_FORMAT": "%j"}
    small = ["data.tasks=900", "pretrain.epochs=1", "evaluate.tasks=10"]
    pipeline = Pipeline(dev_cluster | theirs, tmp_path, *small)
    pipeline.finish()
    ids = {record.id.partition("_")[0] for record in load_records(pipeline.run).values()}
    command = ["sacct", "--noheader", "--parsable2", "--allocations", f"--jobs={','.join(ids)}"]
    limits = subprocess.check_output([*command, "--format=TimelimitRaw"], env=dev_cluster)
    settings = load_cluster("slurm", [])
    ours = {str(settings.resources(stage).minutes) for stage in STAGES}
    assert "5" not in ours and set(limits.decode().split()) == ours


def test_failure_ends_with_an_exit_code_and_the_reason(dev_cluster: Env, tmp_path: Path) -> None:
    # Without a process manager for MPI every rank would be a world of its own.
    arguments = ["tests/configs/tiny.yaml", "cluster.mpi=none", "--wait"]
    code, log = submit_and_wait(dev_cluster, tmp_path, *arguments)
    assert code != 0
    assert "sad-hpc: error: 1 rank(s) see each other but SLURM_NTASKS=2" in log
    assert "aggregate" in log and "stuck behind collect" in log


def test_the_script_of_each_stage(pipeline: Pipeline, undisturbed: Pipeline) -> None:
    runs, results = ["--runs", str(pipeline.folder / "runs")], ["--results", str(pipeline.results)]
    for options, script, arguments in (
        ([], "collect", runs),
        (["--ntasks=2"], "pretrain", [*runs, "--row", "SAD", "--seed", "0"]),
        (["--array=0-1"], "evaluate", runs),
        ([], "aggregate", [*runs, *results]),
    ):
        command = [*options, f"slurm/{script}.sh", str(TINY), *pipeline.overrides, *arguments]
        code, log = sbatch(pipeline.env, pipeline.folder / f"{script}.log", *command)
        assert code == 0, log
    pipeline.same_as(undisturbed)


def test_ranks_that_mpiexec_starts_within_a_job(dev_cluster: Env, tmp_path: Path) -> None:
    """mpiexec starts one process a node by srun, and these start the ranks."""
    script = tmp_path / "mpiexec.sh"
    ranks = f"{BIN}/mpiexec -n 2 {BIN}/sad-hpc collect {TINY} --runs {tmp_path}/runs"
    script.write_text(f"#!/bin/bash\n{ranks}\n")
    code, log = sbatch(dev_cluster, tmp_path / "mpiexec.log", "--ntasks=2", str(script))
    assert code == 0, log
    marker = Run(load_experiment(TINY), tmp_path / "runs").data().done
    assert marker is not None and marker["ranks"] == 2
