"""Options and environment of srun for the ranks of a stage, also for slurm/*.sh."""

import os
import shutil
from typing import NoReturn

from sad_hpc.errors import UserError
from sad_hpc.parallel.ranks import environment_number
from sad_hpc.parallel.standard_streams import hand_over_output

IGNORE_USR2 = 'trap "" USR2; exec "$0" "$@"'
"""Code for sh: ignore USR2, which would end the process before Python installs its handler."""


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
    hand_over_output()
    os.execvp("srun", ["srun", *options, "sh", "-c", IGNORE_USR2, "sad-hpc", stage, *arguments])
