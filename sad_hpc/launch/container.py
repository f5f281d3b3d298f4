"""Jobs whose Python runs in an Apptainer container (`cluster.container`, containers/sad_hpc.def).

srun starts the container once for each rank, and the ranks meet through the PMI of Slurm that the
MPI library inside speaks.  Slurm's commands are outside: a rank that wants its job queued again
leaves a file, by the `scontrol` of the image, and the batch script does it when the ranks have
ended.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from sad_hpc.launch.cluster import ClusterConfig

REQUESTS = "SAD_HPC_REQUESTS"
"""The folder where containers/scontrol leaves `requeue-<job>`."""

QUEUE_AGAIN = (
    "code=$?",
    f'request="${REQUESTS}/requeue-'
    '${SLURM_ARRAY_JOB_ID:-$SLURM_JOB_ID}${SLURM_ARRAY_TASK_ID:+_$SLURM_ARRAY_TASK_ID}"',
    'if [ -e "$request" ]; then rm "$request"; scontrol requeue "$SLURM_JOB_ID"; fi',
    "exit $code",
)
"""Lines of a batch script, behind srun's."""


def interpreter(cluster: ClusterConfig, stage: str, folders: Sequence[Path]) -> list[str]:
    """The command that is Python in every rank of a stage.

    Args:
        cluster: its `container` and `python`.
        stage: one with GPUs needs their drivers inside.
        folders: which must be seen inside; Apptainer by itself shows the home and /tmp.
    """
    if cluster.container is None:
        return [cluster.python or sys.executable]
    drivers = ["--nv"] if cluster.resources(stage).gpus else []
    binds = [f"--bind={folder}" for folder in dict.fromkeys(folders)]
    image = str(Path(cluster.container).absolute())
    return ["apptainer", "exec", *drivers, *binds, image, cluster.python or "python3"]
