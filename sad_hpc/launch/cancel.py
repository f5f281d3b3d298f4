"""`sad-hpc cancel`: the end of a run's jobs in Slurm."""

from collections.abc import Mapping

from sad_hpc.errors import UserError
from sad_hpc.launch.executor import run_tag
from sad_hpc.launch.records import load_records
from sad_hpc.launch.slurm import QueueEntry, cancel, squeue
from sad_hpc.storage.lock import held
from sad_hpc.storage.run import Run


def jobs_of(run: Run, queue: Mapping[str, QueueEntry]) -> list[str]:
    """Return the ids of this run's jobs that have not ended, recorded or not."""
    tag = run_tag(run)
    return [job for job, entry in queue.items() if entry.comment == tag and entry.is_alive]


def clusters_of(run: Run) -> set[str | None]:
    """Return the clusters that may have jobs of this run; None is that of this machine."""
    return {None, *(record.cluster for record in load_records(run).values())}


def cancel_jobs(run: Run) -> None:
    """Cancel a run's jobs, and wait until they have ended; the next launch continues their work.

    Raises:
        UserError: Slurm does not answer, or a launcher still works on the run.
    """
    with held(run.path):
        here = [record.id for record in load_records(run).values() if record.runs_here]
        found = {cluster: jobs_of(run, squeue(cluster)) for cluster in clusters_of(run)}
        for cluster, jobs in found.items():
            if jobs:
                cancel(jobs, cluster)
                print(f"cancelled {', '.join(jobs)}; launch again to continue")
    if here:
        raise UserError(f"{run.path} also has processes on this machine: kill {' '.join(here)}")
    if not any(found.values()):
        print(f"{run.path} has no jobs in Slurm's queue")
