"""How srun starts the ranks of a stage, in the launcher's jobs and in those of slurm/*.sh."""

import os
import shutil
from typing import NoReturn

from sad_hpc.errors import UserError
from sad_hpc.parallel.ranks import environment_number
from sad_hpc.parallel.standard_streams import hand_over_output

IGNORE_USR2 = 'trap "" USR2; exec "$0" "$@"'
"""For sh: until Python listens to the signal, it must not end the process."""


def srun_options(stage: str, cpus: int, gpus: int, mpi: str) -> list[str]:
    """What srun is told about a stage.

    Args:
        stage: only collect's ranks speak MPI.
        cpus: of each rank.
        gpus: of each rank.
        mpi: of `srun --mpi=`.
    """
    # Steps do not inherit cpus-per-task from the job since Slurm 22.05.  A rank that fails takes
    # the others down, which would wait for it in a collective.
    options = [f"--cpus-per-task={cpus}", "--kill-on-bad-exit=1"]
    options.append(f"--mpi={mpi if stage == 'collect' else 'none'}")
    if gpus:
        # Every rank sees all GPUs of its node and takes the one of its local rank: NCCL needs that.
        options.append("--gpu-bind=none")
    return options


def rank_environment(cpus: int) -> dict[str, str]:
    """What every rank finds in its environment before Python starts."""
    threads = str(cpus)
    return {
        "OMP_NUM_THREADS": threads,
        "MKL_NUM_THREADS": threads,
        # Mesa's software renderer would start a thread a core in every rank.
        "LP_NUM_THREADS": "1",
        # `python -m` would import what lies in the working directory, before what is installed.
        "PYTHONSAFEPATH": "1",
        # srun hands on what this script has set up, also where SBATCH_EXPORT=NONE starts it bare.
        "SLURM_EXPORT_ENV": "ALL",
    }


def become_srun(stage: str, arguments: list[str]) -> NoReturn:
    """Replaces this process, of a batch job, by `sad-hpc STAGE ARGUMENTS` in every rank of the job.

    Raises:
        UserError: this is no batch job.
    """
    if "SLURM_JOB_ID" not in os.environ or shutil.which("srun") is None:
        raise UserError("`sad-hpc ranks` is for Slurm's batch jobs, such as slurm/collect.sh")
    cpus = environment_number("SLURM_CPUS_PER_TASK", 1)
    gpus = 1 if os.environ.get("SLURM_GPUS_PER_TASK") else 0
    options = srun_options(stage, cpus, gpus, os.environ.get("SLURM_MPI_TYPE", "pmi2"))
    if stage in ("evaluate", "aggregate"):
        options.append("--ntasks=1")
    os.environ.update(rank_environment(cpus))
    hand_over_output()
    os.execvp("srun", ["srun", *options, "sh", "-c", IGNORE_USR2, "sad-hpc", stage, *arguments])
