"""What jobs find in their environment, and sbatch in the one it is called from."""

import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager

from submitit.helpers import clean_env

from sad_hpc.launch.cluster import OWNED, ClusterConfig
from sad_hpc.launch.srun import rank_environment

MEMORY = {"mem", "mem-per-cpu", "mem-per-gpu"}
"""Options of sbatch of which a job may have one."""

VARIABLES = {"array": "ARRAY_INX", "mem": "MEM_PER_NODE", "time": "TIMELIMIT"}
"""SBATCH_* of options that have another name there."""


def job_environment(cluster: ClusterConfig, stage: str) -> dict[str, str]:
    """What every rank of a stage finds in its environment before Python starts."""
    environment = rank_environment(cluster.resources(stage).cpus_per_rank)
    if cluster.hdf5_file_locking is not None:
        # HDF5 reads it once, when h5py is imported.
        environment["HDF5_USE_FILE_LOCKING"] = str(cluster.hdf5_file_locking).upper()
    return environment


@contextmanager
def submission_environment(
    extra: Mapping[str, str] | None = None, options: Collection[str] = ()
) -> Iterator[None]:
    """Hides the Slurm job, if any, in which the launcher itself runs; adds `extra` meanwhile.

    SLURM_CONF and SLURM_CLUSTERS say which cluster to talk to, and SBATCH_* are the user's own
    defaults: they stay, but for those that would go before what a script says itself.

    Args:
        extra: variables.
        options: long options of sbatch that the script sets, besides those that it always does.
    """
    before = dict(os.environ)
    kept = {"SLURM_CONF", "SLURM_CLUSTERS"}
    kept |= {key for key in before if key.startswith("SBATCH_")} - _said_by_scripts(options)
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
    said = {*OWNED, "no-requeue"} - MEMORY - {"export"} | set(options)
    if said & MEMORY:
        said |= MEMORY
    return {f"SBATCH_{VARIABLES.get(option, option.upper().replace('-', '_'))}" for option in said}
