"""A thin layer over submitit: an executor for each stage."""

import json
import math
import os
import shlex
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

from submitit import SlurmExecutor

from sad_hpc.errors import UserError
from sad_hpc.launch.cluster import ClusterConfig
from sad_hpc.launch.container import QUEUE_AGAIN, REQUESTS, interpreter
from sad_hpc.launch.controller import RanksExecutor
from sad_hpc.launch.environment import job_environment, search_path, submission_environment
from sad_hpc.launch.job import MpiJob, StageJob
from sad_hpc.launch.setup_lines import setup_lines
from sad_hpc.launch.srun import IGNORE_USR2, srun_options
from sad_hpc.parallel.signals import handled
from sad_hpc.storage.files import checksum
from sad_hpc.storage.run import Run

SIGNAL_SECONDS = 120
"""How long before its time limit a job is told to stop, or a quarter of a shorter limit."""


def log_folder(run: Run, stage: str) -> Path:
    """Where a stage's jobs keep logs, scripts and pickles, each name beginning with the job's id.

    The folder exists before the job: Slurm fails a job whose log has no folder when it
    starts, which is what a folder named by the job's id risks.
    """
    return run.logs.absolute() / stage


class StageExecutor(SlurmExecutor):
    """submitit's Slurm executor for one stage; it makes scripts on machines without Slurm, too."""

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
        # Not in `sbatch_parameters`, by which queued jobs are compared with new settings.
        exports = [f"export {key}={shlex.quote(path)}" for key, path in search_path().items()]
        parameters["setup"] = [*exports, *parameters["setup"]]
        self.update_parameters(comment=run_tag(run), **parameters)

    @classmethod
    def affinity(cls) -> int:
        """Available everywhere: `pipeline` checks for Slurm before it submits."""
        return 1

    @property
    def options(self) -> set[str]:
        """The long options of sbatch that the script sets."""
        parameters = {**self.parameters, **self.parameters["additional_parameters"]}
        return {key.replace("_", "-") for key, value in parameters.items() if value is not None}

    def script(self, elements: int | None = None) -> str:
        """The text that is handed to sbatch; with `elements`, as a job array of so many."""
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
        """For an array submitit makes an executor of its own, which knows nothing of `_num_tasks`
        and needs a number of nodes; sbatch is told that any will do."""
        if self.parameters["nodes"] is None:
            additional = self.parameters["additional_parameters"]
            any_number = {**additional, "nodes": f"1-{additional['ntasks']}"}
            self.update_parameters(nodes=1, additional_parameters=any_number)

    def _num_tasks(self) -> int:
        # Here submitit wants nodes x ranks a node; the number of ranks is in `ntasks`.
        return 1


def run_tag(run: Run) -> str:
    """The comment of a run's jobs, by which a launcher knows those that none has recorded."""
    return f"sad_hpc-{checksum(str(run.path.resolve()).encode())[:16]}"


def _refuse_what_sbatch_would_read(folder: Path) -> None:
    """Logs are named in comments of a script, where no quotes help.

    Raises:
        UserError: the path would be read as something else.
    """
    if not str(folder).isprintable() or "%" in str(folder):
        raise UserError(
            f"{str(folder)!r} holds a line break, another control character or a %, which sbatch "
            "does not leave alone in a log's name: choose another --runs folder"
        )


def sbatch_parameters(
    cluster: ClusterConfig, stage: str, name: str, dependency: str | None = None
) -> dict[str, Any]:
    """A stage's resources as parameters of submitit's SlurmExecutor."""
    resources = cluster.resources(stage)
    cpus, memory = resources.cpus_per_rank * resources.pack, resources.memory_gb
    asked = cluster.sbatch | resources.sbatch
    additional: dict[str, Any] = {"ntasks": resources.ranks, **asked}
    if "no-requeue" not in asked:
        additional["requeue"] = True  # also where a cluster's default is to let jobs go
    if dependency is not None:
        # A job whose requirement failed ends, instead of waiting in the queue for ever.
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
        # A rank's memory, however Slurm spreads the ranks over nodes.
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
    """A checksum of what sbatch is told about a stage's jobs, whatever they depend on.

    Without the throttle of arrays: it keeps no job from starting.
    """
    parameters = sbatch_parameters(cluster, stage, stage)
    del parameters["array_parallelism"]
    told = [parameters, *interpreter(cluster, stage, [])]
    return checksum(json.dumps(told, sort_keys=True).encode())[:16]


def start_locally(run: Run, cluster: ClusterConfig, stage: str, job: StageJob) -> Any:
    """Starts a step on this machine and returns submitit's LocalJob.

    Raises:
        UserError: collect needs mpiexec and there is none.
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
        visible_gpus=visible_gpus(resources.gpus * resources.ranks),
        setup=setup_lines(cluster.setup),
    )
    # Ctrl-C is for the launcher, which then ends the job's processes; they inherit this.
    ignored = handled(signal.SIGINT, by=signal.SIG_IGN)
    with submission_environment(job_environment(cluster, stage)), ignored:
        return executor.submit(work)


def find_mpiexec() -> str:
    """The mpiexec of the MPI library that mpi4py uses: the wheel's, beside Python, goes first.

    Raises:
        UserError: there is none.
    """
    beside = Path(sys.executable).parent / "mpiexec"
    found = str(beside) if beside.exists() else shutil.which("mpiexec")
    if found is None:
        raise UserError(
            f"no mpiexec beside {sys.executable} nor on the PATH: pip install mpich, or use one "
            "rank (cluster.collect.ranks=1)"
        )
    return found


def visible_gpus(wanted: int) -> tuple[int, ...]:
    """The GPUs that the user left visible; () means all.

    Raises:
        UserError: they are fewer than wanted.
    """
    numbers = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    if not all(number.strip().isdigit() for number in numbers):
        return ()
    if wanted > len(numbers):
        raise UserError(
            f"{wanted} GPUs are asked for, but CUDA_VISIBLE_DEVICES shows {len(numbers)}; lower "
            "ranks or gpus in the cluster settings"
        )
    return tuple(int(number) for number in numbers)
