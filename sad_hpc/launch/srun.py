"""The start of a stage's ranks: setup lines, the container, and srun's options and environment.

With `cluster.container` (containers/sad_hpc.def), srun starts one Apptainer container for each
rank, and the ranks connect through Slurm's PMI.  Slurm's commands are outside of the container.  To
requeue its job, a rank calls the image's `scontrol`, which writes a file; the batch script requeues
the job when the ranks have ended.
"""

import os
import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from sad_hpc.errors import ERROR_PREFIX, UserError
from sad_hpc.launch.cluster import ClusterConfig
from sad_hpc.parallel.process import hand_over_output
from sad_hpc.parallel.ranks import environment_number, forget_process_manager

CHECK = (
    'check_setup() { [ "$1" = 0 ] || '
    f'{{ echo "{ERROR_PREFIX}cluster.setup: $2: exit code $1" >&2; exit "$1"; }}; }}'
)
"""A shell function that ends the job if the exit code of a line is not 0."""

REQUESTS = "SAD_HPC_REQUESTS"
"""Variable with the folder where containers/scontrol writes `requeue-<job>`."""

QUEUE_AGAIN = (
    "code=$?",
    # One element of an array has the array's id as its SLURM_JOB_ID.
    "job=${SLURM_ARRAY_JOB_ID:-$SLURM_JOB_ID}${SLURM_ARRAY_TASK_ID:+_$SLURM_ARRAY_TASK_ID}",
    f'request="${REQUESTS}/requeue-$job"',
    'if [ -e "$request" ]; then',
    '  rm "$request"',
    '  scontrol show job --oneliner "$job" | grep -q JobState=CANCELLED || scontrol requeue "$job"',
    "fi",
    "exit $code",
)
"""Lines of a batch script that follow srun and requeue the job, unless it is cancelled, if a rank
asked for it."""

IGNORE_USR2 = 'trap "" USR2; exec "$0" "$@"'
"""Code for sh: ignore USR2, which would end the process before Python installs its handler."""


def setup_lines(setup: Sequence[str]) -> list[str]:
    """Return the lines, each with a check that ends the job and names the line if it fails."""
    checked = [part for line in setup for part in (line, f'check_setup "$?" {shlex.quote(line)}')]
    return [CHECK, *checked] if setup else []


def interpreter(cluster: ClusterConfig, stage: str, folders: Sequence[Path]) -> list[str]:
    """Return the command that starts Python in every rank of a stage.

    Args:
        cluster: settings with `container` and `python`.
        stage: the stage; if it has GPUs, the container gets their drivers.
        folders: folders to bind into the container; Apptainer itself binds the home and /tmp.
    """
    if cluster.container is None:
        return [cluster.python or sys.executable]
    drivers = ["--nv"] if cluster.resources(stage).gpus else []
    binds = [f"--bind={folder}" for folder in dict.fromkeys(folders)]
    image = str(Path(cluster.container).absolute())
    return ["apptainer", "exec", *drivers, *binds, image, cluster.python or "python3"]


def srun_options(stage: str, cpus: int, gpus: int, mpi: str) -> list[str]:
    """Return the options of srun for a stage.

    Args:
        stage: the stage; only collect uses MPI.
        cpus: CPUs of each rank.
        gpus: GPUs of each rank.
        mpi: value of `srun --mpi=` for collect.
    """
    # Since Slurm 22.05 steps do not inherit cpus-per-task from the job.  A failed rank ends the
    # others, which would wait for it in a collective.
    options = [f"--cpus-per-task={cpus}", "--kill-on-bad-exit=1"]
    options.append(f"--mpi={mpi if stage == 'collect' else 'none'}")
    if gpus:
        # NCCL needs every rank to see all GPUs of its node; each takes that of its local rank.
        options.append("--gpu-bind=none")
    return options


def rank_environment(cpus: int) -> dict[str, str]:
    """Return the environment variables of every rank before Python starts."""
    threads = str(cpus)
    return {
        "OMP_NUM_THREADS": threads,
        "MKL_NUM_THREADS": threads,
        # Mesa's software renderer would start one thread for each core in every rank.
        "LP_NUM_THREADS": "1",
        # `python -m` would prefer modules of the working directory to installed ones.
        "PYTHONSAFEPATH": "1",
        # srun passes on the script's environment even under SBATCH_EXPORT=NONE.
        "SLURM_EXPORT_ENV": "ALL",
    }


def become_srun(stage: str, arguments: list[str]) -> NoReturn:
    """Replace this process by an srun of `sad-hpc STAGE ARGUMENTS` in every rank of its batch job.

    Raises:
        UserError: this process is not in a batch job.
    """
    if "SLURM_JOB_ID" not in os.environ or shutil.which("srun") is None:
        raise UserError("`sad-hpc ranks` needs a Slurm batch job, such as slurm/collect.sh")
    cpus = environment_number("SLURM_CPUS_PER_TASK", 1)
    gpus = 1 if os.environ.get("SLURM_GPUS_PER_TASK") else 0
    options = srun_options(stage, cpus, gpus, os.environ.get("SLURM_MPI_TYPE", "pmi2"))
    if stage in ("evaluate", "aggregate"):
        options.append("--ntasks=1")
    os.environ.update(rank_environment(cpus))
    forget_process_manager()
    hand_over_output()
    os.execvp("srun", ["srun", *options, "sh", "-c", IGNORE_USR2, "sad-hpc", stage, *arguments])
