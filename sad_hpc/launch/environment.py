"""Environment variables of jobs, and of the calls to sbatch and other Slurm commands."""

import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager

from sad_hpc.launch.cluster import ELSEWHERE, OWNED, ClusterConfig
from sad_hpc.launch.srun import rank_environment
from sad_hpc.parallel.submitit_private import clean_env
from sad_hpc.storage.ownership import TRUSTED

MEMORY = {"mem", "mem-per-cpu", "mem-per-gpu"}
GPUS = {"gpus", "gpus-per-node", "gpus-per-task", "gres"}
"""Options of sbatch that contradict each other."""

VARIABLES = {
    "array": "ARRAY_INX",
    "cpu-freq": "CPU_FREQ_REQ",
    "mem": "MEM_PER_NODE",
    "switches": "REQ_SWITCH",
    "time": "TIMELIMIT",
}
"""Options of sbatch whose variable SBATCH_* has another name."""

FILTERS = ("SACCT_", "SCANCEL_", "SLURM_CLUSTERS", "SLURM_TIME_FORMAT", "SQUEUE_")
"""Prefixes of variables that filter or format the output of Slurm's commands."""


def job_environment(cluster: ClusterConfig, stage: str) -> dict[str, str]:
    """Return the environment variables of every rank of a stage before Python starts."""
    environment = rank_environment(cluster.resources(stage).cpus_per_rank)
    if cluster.hdf5_file_locking is not None:
        # HDF5 reads it once, when h5py is imported.
        environment["HDF5_USE_FILE_LOCKING"] = str(cluster.hdf5_file_locking).upper()
    return environment


def passed_on() -> dict[str, str]:
    """Return the user's variables that jobs need, and that SBATCH_EXPORT=NONE would hide from them.

    They are PYTHONPATH, with absolute folders, and SAD_HPC_TRUSTED_OWNERS.
    """
    folders = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    path = os.pathsep.join(map(os.path.abspath, folders))
    found = {"PYTHONPATH": path, TRUSTED: os.environ.get(TRUSTED, "")}
    return {name: value for name, value in found.items() if value}


def client_environment() -> dict[str, str]:
    """Return the environment for Slurm's query commands, without the user's filters and formats."""
    return {key: value for key, value in os.environ.items() if not key.startswith(FILTERS)}


@contextmanager
def submission_environment(
    extra: Mapping[str, str] | None = None, options: Collection[str] = ()
) -> Iterator[None]:
    """Hide the Slurm job in which the launcher may run, and add `extra`, within this block.

    SLURM_CONF, which selects the cluster, and SLURM_JWT, a token, stay.  So do SBATCH_*, the user's
    defaults, except those that would override options of the script.

    Args:
        extra: variables to add.
        options: long options of sbatch that the script sets besides the usual ones.
    """
    before = dict(os.environ)
    kept = {"SLURM_CONF", "SLURM_JWT", *(key for key in before if key.startswith("SBATCH_"))}
    kept -= _said_by_scripts(options)
    with clean_env():
        os.environ.update({key: before[key] for key in kept if key in before})
        os.environ.update(extra or {})
        try:
            yield
        finally:
            os.environ.clear()
            os.environ.update(before)


def _said_by_scripts(options: Collection[str]) -> set[str]:
    """Return the SBATCH_* variables that would override options of the script."""
    said = {*OWNED, *ELSEWHERE, "cpus-per-gpu", "no-requeue"} - {*MEMORY, "export", "gpus-per-task"}
    said |= set(options)
    for rivals in (MEMORY, GPUS):
        if said & rivals:
            said |= rivals
    return {f"SBATCH_{VARIABLES.get(option, option.upper().replace('-', '_'))}" for option in said}
