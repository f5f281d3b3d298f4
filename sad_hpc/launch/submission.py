"""Submission of a run's graph to Slurm; each job is recorded as soon as it has an id."""

import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from sad_hpc.errors import UserError
from sad_hpc.launch.cancel import jobs_of
from sad_hpc.launch.cluster import ClusterConfig
from sad_hpc.launch.environment import submission_environment
from sad_hpc.launch.executor import StageExecutor, log_folder, run_tag, settings_of
from sad_hpc.launch.graph import Step
from sad_hpc.launch.job import StageJob
from sad_hpc.launch.memory_retry import MemoryGrant, memory_grants, split_by_grant
from sad_hpc.launch.pack import PackJob, member_log
from sad_hpc.launch.plan import SubmitBatch, batches, dependency, missing_steps
from sad_hpc.launch.records import JobRecord, load_records, queued_records, save_records
from sad_hpc.launch.slurm import (
    QueueEntry,
    cancel,
    find_jobs,
    ids_by_cluster,
    largest_array,
    squeue,
)
from sad_hpc.launch.status import BLOCKED_ADVICE
from sad_hpc.parallel.submitit_private import FailedJobError, FailedSubmissionError
from sad_hpc.storage.run import Run

REFUSED = (
    "check cluster.partition, account, qos, ranks, memory_gb and minutes (configs/cluster), and "
    "`sinfo`"
)
TOO_MANY = (
    "a limit of the account or QOS is reached, such as MaxSubmitJobs (`sacctmgr show assoc,qos`): "
    "launch again when some jobs have ended, or change cluster.account, qos, nodes, ranks or "
    "minutes"
)


@dataclass(frozen=True)
class QueuedSteps:
    """The incomplete steps of a run that have jobs in Slurm's queue."""

    active: dict[str, str]
    """Ids of queued or running jobs of earlier launches, by step title."""
    outdated: set[str]
    """Titles of the steps whose waiting jobs have other cluster settings than the current ones."""

    @classmethod
    def of(
        cls, run: Run, steps: list[Step], cluster: ClusterConfig, queue: Mapping[str, QueueEntry]
    ) -> "QueuedSteps":
        """Compare the recorded jobs with the queue of the cluster of this launch."""
        found, records, tag = cls({}, set()), _records_on(run, cluster), run_tag(run)
        for step in steps:
            record = records.get(step.title)
            entry = queue.get(record.id) if record else None
            if record is None or entry is None or not entry.is_active or step.complete:
                continue
            if entry.comment != tag:  # a Slurm that was installed again counts from 1
                continue
            found.active[step.title] = record.id
            if entry.is_waiting and record.settings != settings_of(cluster, step.stage):
                found.outdated.add(step.title)
        return found

    def missing(self, steps: list[Step]) -> list[Step]:
        """Return the steps to submit."""
        active = self.active.keys() - self.outdated
        while True:
            missing = missing_steps(steps, active)
            # Replacing a job also ends the other steps of its pack.
            lost = {self.active[step.title] for step in missing if step.title in self.active}
            together = {title for title in active if self.active[title] in lost}
            if not together - {step.title for step in missing}:
                return missing
            active -= together


def submit_missing(
    run: Run, steps: list[Step], cluster: ClusterConfig, results: Path, replace_tables: bool = False
) -> None:
    """Submit the missing steps, and replace waiting jobs with outdated settings or dependencies.

    Args:
        run: the run.
        steps: the steps of `graph(run)`.
        cluster: cluster settings.
        results: the folder of aggregate's tables.
        replace_tables: whether aggregate may drop and replace results of other settings.

    Raises:
        UserError: Slurm is missing, does not answer, or refuses a job.
    """
    if shutil.which("sbatch") is None:
        raise UserError(
            "no sbatch on the PATH: use --cluster local, or start a Slurm on this machine with "
            'eval "$(slurm/dev_cluster.sh up)"'
        )
    _check_one_cluster(run, steps, cluster)
    queue = squeue(cluster.clusters)
    _cancel_unrecorded(run, queue, cluster)
    queued = QueuedSteps.of(run, steps, cluster, queue)
    missing = queued.missing(steps)
    ids = dict(queued.active)
    for title in sorted(queued.outdated):
        print(f"{title}: replacing job {ids[title]}, because the cluster settings have changed")
    cancel([ids.pop(step.title) for step in missing if step.title in ids], cluster.clusters)
    for title, job in ids.items():
        blocked = f", blocked ({queue[job].reason})" if queue[job].is_blocked else ""
        print(f"{title}: already has job {job}{blocked}")
    if any(queue[job].is_blocked for job in ids.values()):
        print(BLOCKED_ADVICE)
    grants = memory_grants(missing, load_records(run), cluster)
    for batch in batches(missing, largest_array(cluster.clusters), cluster.packs):
        for grant, part in split_by_grant(batch, grants):
            after = dependency(part, ids)
            jobs = [_work(run, pack, results, replace_tables) for pack in part.packs]
            records = _submit(run, part, jobs, after, cluster, grant)
            save_records(run, records)
            for title, record in records.items():
                ids[title] = record.id
                words = [f"{title}: job {record.id}", after or "", grant.text]
                print(" ".join(word for word in words if word), flush=True)


def _submit(
    run: Run,
    batch: SubmitBatch,
    work: Sequence[StageJob | PackJob],
    after: str | None,
    cluster: ClusterConfig,
    grant: MemoryGrant,
) -> dict[str, JobRecord]:
    granted = cluster.with_resources(
        batch.stage, memory_gb=grant.memory_gb, pack=batch.largest_pack
    )
    executor = StageExecutor(run, granted, batch.stage, batch.name, after)
    log_folder(run, batch.stage).mkdir(parents=True, exist_ok=True)
    try:
        with submission_environment(options=executor.options):
            jobs = executor.submit_array(list(work))
    except (FailedJobError, FailedSubmissionError) as error:
        reason = " ".join(str(error).split())
        remedy = TOO_MANY if re.search("submit limit|MaxSubmit", reason) else REFUSED
        raise UserError(f"Slurm refused {batch.name}: {reason}; {remedy}") from None
    told = (settings_of(cluster, batch.stage), grant.memory_gb, grant.kills, cluster.clusters)
    records = {}
    for job, steps in zip(jobs, batch.packs, strict=True):
        for number, step in enumerate(steps):
            record = JobRecord.of(job, "slurm", *told)
            if len(steps) > 1:
                log = member_log(job.paths.folder, job.job_id, number)
                record = replace(record, log=str(log))
            records[step.title] = record
    return records


def _work(
    run: Run, steps: tuple[Step, ...], results: Path, replace_tables: bool
) -> StageJob | PackJob:
    jobs = tuple(StageJob.of(run, step, results, replace_tables) for step in steps)
    return PackJob(jobs) if len(jobs) > 1 else jobs[0]


def _check_one_cluster(run: Run, steps: list[Step], cluster: ClusterConfig) -> None:
    """Refuse to continue on another cluster than that of queued jobs, on which no job can depend.

    Raises:
        UserError: jobs of this run's incomplete steps are queued or running on another cluster.
    """
    for name, ids in ids_by_cluster(queued_records(steps, load_records(run))).items():
        if name == cluster.clusters:
            continue
        if any(entry.is_alive for entry in find_jobs(ids, name).values()):
            raise UserError(
                f"{run.path} has jobs on another cluster: continue with cluster.clusters="
                f"{name or 'null'}, or `sad-hpc cancel {run.path}`"
            )


def _cancel_unrecorded(run: Run, queue: Mapping[str, QueueEntry], cluster: ClusterConfig) -> None:
    """Cancel jobs of this run that are not in jobs.json.

    Their launcher died between sbatch and the record.  They would be second writers beside the new
    jobs, and later steps do not depend on them.
    """
    recorded = {record.id for record in _records_on(run, cluster).values()}
    if lost := [job for job in jobs_of(run, queue) if job not in recorded]:
        print(f"cancelling unrecorded jobs of a launcher that died: {', '.join(lost)}")
        cancel(lost, cluster.clusters)


def _records_on(run: Run, cluster: ClusterConfig) -> dict[str, JobRecord]:
    """Return the records of Slurm jobs on the cluster of this launch; other clusters reuse ids."""
    return {
        title: record
        for title, record in load_records(run).items()
        if record.executor == "slurm" and record.cluster == cluster.clusters
    }
