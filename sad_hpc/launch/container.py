"""Jobs whose Python runs in an Apptainer container (`cluster.container`, containers/sad_hpc.def).

srun starts one container for each rank, and the ranks connect through Slurm's PMI.  Slurm's
commands are outside of the container.  To requeue its job, a rank calls the image's `scontrol`,
which writes a file; the batch script requeues the job when the ranks have ended.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from sad_hpc.launch.cluster import ClusterConfig

REQUESTS = "SAD_HPC_REQUESTS"
"""Variable with the folder where containers/scontrol writes `requeue-<job>`."""

QUEUE_AGAIN = (
    "code=$?",
    f'request="${REQUESTS}/requeue-'
    '${SLURM_ARRAY_JOB_ID:-$SLURM_JOB_ID}${SLURM_ARRAY_TASK_ID:+_$SLURM_ARRAY_TASK_ID}"',
    'if [ -e "$request" ]; then rm "$request"; scontrol requeue "$SLURM_JOB_ID"; fi',
    "exit $code",
)
"""Lines of a batch script that follow srun and requeue the job if a rank asked for it."""


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
