"""Executors of the stages, on top of submitit: Slurm scripts and local jobs."""

import json
import math
import shlex
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

from submitit import SlurmExecutor

from sad_hpc.errors import UserError
from sad_hpc.launch.cluster import ClusterConfig
from sad_hpc.launch.controller import RanksExecutor
from sad_hpc.launch.environment import job_environment, passed_on, submission_environment
from sad_hpc.launch.job import MpiJob, StageJob
from sad_hpc.launch.srun import (
    IGNORE_USR2,
    QUEUE_AGAIN,
    REQUESTS,
    interpreter,
    setup_lines,
    srun_options,
)
from sad_hpc.parallel.preemption import handled
from sad_hpc.storage.files import checksum
from sad_hpc.storage.run import Run

SIGNAL_SECONDS = 120
"""Time between the signal and a job's time limit; a quarter of the limit if that is less."""


def log_folder(run: Run, stage: str) -> Path:
    """Return the folder of a stage's logs, scripts and pickles, whose names begin with the job id.

    The folder must exist before the job starts, or Slurm fails the job.  Its name therefore does
    not contain the job id.
    """
    return run.logs.absolute() / stage


class StageExecutor(SlurmExecutor):
    """submitit's Slurm executor for one stage; it can also write scripts without Slurm."""

    def __init__(
        self, run: Run, cluster: ClusterConfig, stage: str, name: str, dependency: str | None
    ) -> None:
        _refuse_what_sbatch_would_read(log_folder(run, stage))
        folders = [run.runs.absolute(), Path.cwd()]
        python = interpreter(cluster, stage, folders)
        super().__init__(
            folder=log_folder(run, stage),
            max_num_timeout=cluster.max_requeues,
            python=shlex.join(["sh", "-c", IGNORE_USR2, *python]),
        )
        parameters = sbatch_parameters(cluster, stage, name, dependency)
        if cluster.container is not None:
            folder = shlex.quote(str(log_folder(run, stage)))
            parameters["setup"] = [f"export {REQUESTS}={folder}", *parameters["setup"]]
            parameters["teardown"] = list(QUEUE_AGAIN)
        # Not in `sbatch_parameters`: a change of PYTHONPATH does not outdate queued jobs.
        exports = [f"export {key}={shlex.quote(value)}" for key, value in passed_on().items()]
        parameters["setup"] = [*exports, *parameters["setup"]]
        self.update_parameters(comment=run_tag(run), **parameters)

    @classmethod
    def affinity(cls) -> int:
        """Return 1, available, on every machine; `submit_missing` checks for Slurm."""
        return 1

    @property
    def options(self) -> set[str]:
        """The long options of sbatch that the script sets."""
        parameters = {**self.parameters, **self.parameters["additional_parameters"]}
        return {key.replace("_", "-") for key, value in parameters.items() if value is not None}

    def script(self, elements: int | None = None) -> str:
        """Return the script for sbatch; with `elements`, for an array job of that size."""
        if elements is not None:
            self._name_nodes()
        self.parameters["map_count"] = elements
        return str(self._make_submission_file_text(self._submitit_command_str, ""))

    def _internal_process_submissions(self, delayed_submissions: list[Any]) -> list[Any]:
        if len(delayed_submissions) > 1:
            self._name_nodes()
        jobs: list[Any] = super()._internal_process_submissions(delayed_submissions)
        return jobs

    def _name_nodes(self) -> None:
        """Set a number of nodes, which submitit needs for an array; sbatch gets a range.

        submitit makes a separate executor for an array, without our `_num_tasks`.
        """
        if self.parameters["nodes"] is None:
            additional = self.parameters["additional_parameters"]
            any_number = {**additional, "nodes": f"1-{additional['ntasks']}"}
            self.update_parameters(nodes=1, additional_parameters=any_number)

    def _num_tasks(self) -> int:
        # submitit expects nodes x ranks a node; `ntasks` has the number of ranks.
        return 1


def run_tag(run: Run) -> str:
    """Return the Slurm comment of a run's jobs, which identifies jobs that jobs.json lacks."""
    return f"sad_hpc-{checksum(str(run.path.resolve()).encode())[:16]}"


def _refuse_what_sbatch_would_read(folder: Path) -> None:
    """Refuse a log folder that sbatch would misread; #SBATCH lines cannot quote it.

    Raises:
        UserError: the path contains a % or a control character.
    """
    if not str(folder).isprintable() or "%" in str(folder):
        raise UserError(
            f"{str(folder)!r} contains a line break, another control character or a %, which "
            "sbatch would replace in a log's name: choose another --runs folder"
        )


def sbatch_parameters(
    cluster: ClusterConfig, stage: str, name: str, dependency: str | None = None
) -> dict[str, Any]:
    """Return a stage's resources as parameters of submitit's SlurmExecutor."""
    resources = cluster.resources(stage)
    cpus, memory = resources.cpus_per_rank * resources.pack, resources.memory_gb
    asked = cluster.sbatch | resources.sbatch
    additional: dict[str, Any] = {"ntasks": resources.ranks, **asked}
    if "no-requeue" not in asked:
        additional["requeue"] = True  # even if the cluster's default is not to requeue
    if cluster.clusters is not None:
        additional["clusters"] = cluster.clusters
    if dependency is not None:
        # End a job whose dependency failed, instead of leaving it in the queue.
        additional["kill-on-invalid-dep"] = "yes"
    environment = job_environment(cluster, stage)
    exports = [f"export {key}={shlex.quote(value)}" for key, value in environment.items()]
    return {
        "job_name": name,
        "partition": cluster.partition,
        "account": cluster.account,
        "qos": cluster.qos,
        "nodes": 1 if resources.ranks == 1 else resources.nodes,
        "cpus_per_task": cpus,
        "gpus_per_task": resources.gpus or None,
        # Per CPU, so that it does not depend on how Slurm distributes the ranks over nodes.
        "mem_per_cpu": memory and f"{math.ceil(memory * 1024 / resources.cpus_per_rank)}M",
        "time": resources.minutes,
        "dependency": dependency,
        "array_parallelism": cluster.array_parallelism,
        "signal_delay_s": min(SIGNAL_SECONDS, 15 * resources.minutes),
        "setup": [*exports, *setup_lines(cluster.setup)],
        "srun_args": srun_options(stage, cpus, resources.gpus, cluster.mpi),
        "stderr_to_stdout": True,
        "wckey": None,
        "additional_parameters": additional,
    }


def settings_of(cluster: ClusterConfig, stage: str) -> str:
    """Return a checksum of a stage's sbatch parameters, without dependencies and array throttle.

    The throttle does not keep a job from starting.
    """
    parameters = sbatch_parameters(cluster, stage, stage)
    del parameters["array_parallelism"]
    told = [parameters, *interpreter(cluster, stage, [])]
    return checksum(json.dumps(told, sort_keys=True).encode())[:16]


def start_locally(run: Run, cluster: ClusterConfig, stage: str, job: StageJob) -> Any:
    """Start a step on this machine, and return submitit's LocalJob.

    Raises:
        UserError: collect needs mpiexec, and it is not installed.
    """
    resources = cluster.resources(stage)
    ranks = resources.ranks
    work: StageJob | MpiJob = job
    if stage == "collect" and ranks > 1:
        work, ranks = MpiJob(job, ranks, find_mpiexec()), 1
    executor = RanksExecutor(folder=log_folder(run, stage))
    executor.update_parameters(
        tasks_per_node=ranks,
        gpus_per_node=resources.gpus * resources.ranks,
        setup=setup_lines(cluster.setup),
    )
    # Jobs ignore Ctrl-C, which goes to the launcher; the launcher then ends them.
    ignored = handled(signal.SIGINT, by=signal.SIG_IGN)
    with submission_environment(job_environment(cluster, stage)), ignored:
        return executor.submit(work)


def find_mpiexec() -> str:
    """Return the mpiexec of mpi4py's MPI library: the one beside Python, else that on the PATH.

    Raises:
        UserError: neither exists.
    """
    beside = Path(sys.executable).parent / "mpiexec"
    found = str(beside) if beside.exists() else shutil.which("mpiexec")
    if found is None:
        raise UserError(
            f"no mpiexec beside {sys.executable} nor on the PATH: pip install mpich, or use one "
            "rank (cluster.collect.ranks=1)"
        )
    return found
