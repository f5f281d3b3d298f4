"""What jobs find in their environment, and sbatch in the one it is called from."""

import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager

from sad_hpc.launch.cluster import ELSEWHERE, OWNED, ClusterConfig
from sad_hpc.launch.srun import rank_environment
from sad_hpc.parallel.submitit_private import clean_env

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
"""SBATCH_* of options that have another name there."""

FILTERS = ("SACCT_", "SCANCEL_", "SLURM_CLUSTERS", "SLURM_TIME_FORMAT", "SQUEUE_")
"""How a user wants to see Slurm's answers."""


def job_environment(cluster: ClusterConfig, stage: str) -> dict[str, str]:
    """What every rank of a stage finds in its environment before Python starts."""
    environment = rank_environment(cluster.resources(stage).cpus_per_rank)
    if cluster.hdf5_file_locking is not None:
        # HDF5 reads it once, when h5py is imported.
        environment["HDF5_USE_FILE_LOCKING"] = str(cluster.hdf5_file_locking).upper()
    return environment


def search_path() -> dict[str, str]:
    """PYTHONPATH with absolute folders, where it is set.

    Modules of users are found by it, and SBATCH_EXPORT=NONE would hide it from jobs.
    """
    folders = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    path = os.pathsep.join(map(os.path.abspath, folders))
    return {"PYTHONPATH": path} if path else {}


def client_environment() -> dict[str, str]:
    """For Slurm's other programs: without the user's own filters and formats."""
    return {key: value for key, value in os.environ.items() if not key.startswith(FILTERS)}


@contextmanager
def submission_environment(
    extra: Mapping[str, str] | None = None, options: Collection[str] = ()
) -> Iterator[None]:
    """Hides the Slurm job, if any, in which the launcher itself runs; adds `extra` meanwhile.

    SLURM_CONF says which cluster to talk to, and SBATCH_* are the user's own defaults: they stay,
    but for those that would go before what a script says itself.

    Args:
        extra: variables.
        options: long options of sbatch that the script sets, besides those that it always does.
    """
    before = dict(os.environ)
    kept = {"SLURM_CONF", *(key for key in before if key.startswith("SBATCH_"))}
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
    """The variables that sbatch takes for more than the lines of a script."""
    said = {*OWNED, *ELSEWHERE, "cpus-per-gpu", "no-requeue"} - {*MEMORY, "export", "gpus-per-task"}
    said |= set(options)
    for rivals in (MEMORY, GPUS):
        if said & rivals:
            said |= rivals
    return {f"SBATCH_{VARIABLES.get(option, option.upper().replace('-', '_'))}" for option in said}
