"""`sad-hpc launch`: runs every step of a run that is not complete, here or through Slurm."""

import re
import shutil
import subprocess
import time
from pathlib import Path

from submitit.core.utils import FailedJobError, FailedSubmissionError

from sad_hpc.errors import SadError
from sad_hpc.launch.cluster import ClusterConfig
from sad_hpc.launch.executor import (
    StageExecutor,
    log_folder,
    run_tag,
    settings_of,
    submission_environment,
    visible_gpus,
)
from sad_hpc.launch.graph import Step, graph
from sad_hpc.launch.job import StageJob
from sad_hpc.launch.local import run_locally
from sad_hpc.launch.plan import Batch, batches, dependency, missing_steps
from sad_hpc.launch.queue import LARGEST_ARRAY, QueueEntry, largest_array, squeue
from sad_hpc.launch.records import JobRecord, load_records, save_records
from sad_hpc.launch.scripts import command_line, write_scripts
from sad_hpc.launch.state import BLOCKED_ADVICE
from sad_hpc.launch.wait import wait_for_jobs
from sad_hpc.storage.files import file_size, read_json
from sad_hpc.storage.lock import held
from sad_hpc.storage.ownership import check_ownership
from sad_hpc.storage.run import Run

REFUSED = (
    "see cluster.partition, account, qos, ranks, memory_gb and minutes (configs/cluster), and "
    "`sinfo`"
)
TOO_MANY = (
    "the account or QOS may not have so many jobs in the queue (MaxSubmitJobs), or so large ones: "
    "launch again when some have ended, or see cluster.account, qos, nodes, ranks and minutes; "
    "`sacctmgr show assoc,qos`"
)

ENDING_SECONDS = 120
"""How long a cancelled job may take to end."""


def launch(
    run: Run,
    config: Path,
    overrides: list[str],
    results: Path,
    cluster: ClusterConfig,
    dry_run: bool,
    wait: bool,
) -> int:
    """Starts what is missing; returns the exit code.

    Under Slurm it returns once everything is submitted, unless it shall wait; on this machine alone
    it always waits.

    Args:
        run: the run; complete steps are skipped.
        config: the experiment's file, for messages and scripts (`run` has its content).
        overrides: the same.
        results: where aggregate puts its tables.
        cluster: where to run.
        dry_run: only write and print the submission scripts.
        wait: also under Slurm, return when all jobs have ended.

    Raises:
        SadError: no Slurm, a refused submission, another launcher at work, a full disk, a folder
            that another user could change.
    """
    arguments = command_line(run, config, overrides, results)
    _check_models(run)
    steps = graph(run)
    _check_resources(steps, cluster)
    if dry_run:
        check_ownership(run.path)
        asked = cluster.executor == "slurm" and shutil.which("squeue")
        queue = squeue() if asked else {}
        active = _active_jobs(run, steps, queue)
        missing = missing_steps(steps, active.keys() - _outdated(run, steps, queue, cluster))
        if steps[-1].complete and _tables_are_missing(run, results):
            missing.append(steps[-1])
        planned = batches(missing, largest_array() if asked else LARGEST_ARRAY)
        write_scripts(run, planned, active, cluster, arguments)
        _say_skipped(steps)
        return 0
    # Two launchers of one run would both submit what is missing.
    with held(run.path):
        if cluster.executor == "local":
            _check_nothing_is_queued(run)
        run.prepare(["sad-hpc", "launch", *arguments])
        if _tables_are_missing(run, results):
            (run.aggregate().path / "done.json").unlink(missing_ok=True)
        if cluster.executor == "local":
            succeeded = run_locally(run, steps, cluster, results)
        else:
            _submit_missing(run, steps, cluster, results)
            succeeded = True
    if cluster.executor == "slurm":
        print(f"follow it: sad-hpc status {run.path}", flush=True)
        if not wait:
            return 0
        succeeded = wait_for_jobs(run, steps)
    if succeeded:
        _print_results(results / run.experiment.name)
    return 0 if succeeded else 1


def _check_models(run: Run) -> None:
    """Models of another experiment that are still to be evaluated must be there: no job of this
    run would wait for them."""
    if run.experiment.pretrained is None:
        return
    missing = [
        f"{method} seed {seed}"
        for method, seed in run.experiment.elements
        if run.evaluation(method, seed).done is None and run.checkpoint(method, seed).done is None
    ]
    if missing:
        source = Run(run.experiment.source, run.runs)
        raise SadError(
            f"{run.experiment.name} evaluates the models of {source.experiment.name}, of which "
            f"{source.path} lacks {', '.join(missing)}: launch that experiment first, with the "
            "same --runs and with the settings that 'pretrained' has here"
        )


def _check_resources(steps: list[Step], cluster: ClusterConfig) -> None:
    """What is missing must be possible with the cluster's settings: said before hours of work."""
    for step in steps:
        if step.complete:
            continue
        if cluster.executor == "local":
            resources = cluster.resources(step.stage)
            visible_gpus(resources.gpus * resources.ranks)
        if step.stage == "pretrain":
            step.run.experiment.pretrain.check_ranks(cluster.pretrain.ranks)


def _check_nothing_is_queued(run: Run) -> None:
    """What Slurm still has of this run must not be done here as well."""
    if shutil.which("squeue") is None:
        return
    try:
        queue = squeue()
    except SadError:  # nobody answers: each folder has one writer in any case
        return
    if jobs := _jobs_of(run, queue):
        raise SadError(
            f"{run.path} has jobs in Slurm's queue: go on with --cluster slurm, or "
            f"`scancel {' '.join(jobs)}`"
        )


def _tables_are_missing(run: Run, results: Path) -> bool:
    """Tables of another config, in another --results, or of which a file was deleted since, are no
    reason to skip aggregate."""
    folder = results / run.experiment.name
    made = read_json(folder / "provenance.json") or {}
    if made.get("signature") != run.experiment.aggregate_signature():
        return True
    files = made.get("files", {})  # none are named by tables of earlier versions
    return any(file_size(folder / name) != size for name, size in files.items())


def _submit_missing(run: Run, steps: list[Step], cluster: ClusterConfig, results: Path) -> None:
    """Submits the missing steps, and records each job as soon as it has an id."""
    if shutil.which("sbatch") is None:
        raise SadError(
            "no sbatch on the PATH: this is no Slurm machine; use --cluster local, or try a Slurm "
            'on this machine with eval "$(slurm/dev_cluster.sh up)"'
        )
    _say_skipped(steps)
    queue = squeue()
    _cancel_unrecorded(run, queue)
    active = _active_jobs(run, steps, queue)
    outdated = _outdated(run, steps, queue, cluster)
    missing = missing_steps(steps, active.keys() - outdated)
    for title in sorted(outdated & active.keys()):
        print(f"{title}: job {active[title]} is replaced, for its cluster settings have changed")
    _cancel([active.pop(step.title) for step in missing if step.title in active])
    for title, job in active.items():
        blocked = f", blocked ({queue[job].reason})" if queue[job].is_blocked else ""
        print(f"{title}: has job {job} already{blocked}")
    if any(queue[job].is_blocked for job in active.values()):
        print(BLOCKED_ADVICE)
    ids = dict(active)
    for batch in batches(missing, largest_array()):
        after = dependency(batch, ids)
        records = _submit(run, batch, after, cluster, results)
        save_records(run, records)
        for title, record in records.items():
            ids[title] = record.id
            print(f"{title}: job {record.id}{f' {after}' if after else ''}", flush=True)


def _submit(
    run: Run, batch: Batch, after: str | None, cluster: ClusterConfig, results: Path
) -> dict[str, JobRecord]:
    executor = StageExecutor(run, cluster, batch.stage, batch.name, after)
    log_folder(run, batch.stage).mkdir(parents=True, exist_ok=True)
    try:
        with submission_environment():
            jobs = executor.submit_array([StageJob.of(run, step, results) for step in batch.steps])
    except (FailedJobError, FailedSubmissionError) as error:
        reason = " ".join(str(error).split())
        way_out = TOO_MANY if re.search("submit limit|MaxSubmit", reason) else REFUSED
        raise SadError(f"Slurm refused {batch.name}: {reason}; {way_out}") from None
    settings = settings_of(cluster, batch.stage)
    return {
        step.title: JobRecord.of(step, job, "slurm", settings)
        for step, job in zip(batch.steps, jobs, strict=True)
    }


def _active_jobs(run: Run, steps: list[Step], queue: dict[str, QueueEntry]) -> dict[str, str]:
    """Ids of the jobs of earlier launches that are queued or running, by step title."""
    records = {
        title: record for title, record in load_records(run).items() if record.executor == "slurm"
    }
    wanted = {
        step.title: records[step.title].id
        for step in steps
        if step.title in records and not step.complete
    }
    return {title: id for title, id in wanted.items() if id in queue and queue[id].is_active}


def _outdated(
    run: Run, steps: list[Step], queue: dict[str, QueueEntry], cluster: ClusterConfig
) -> set[str]:
    """Titles of steps whose jobs wait with other cluster settings than they would get now."""
    queued = {
        title: record
        for title, record in load_records(run).items()
        if record.settings and record.id in queue and queue[record.id].is_waiting
    }
    return {
        step.title
        for step in steps
        if step.title in queued and queued[step.title].settings != settings_of(cluster, step.stage)
    }


def _jobs_of(run: Run, queue: dict[str, QueueEntry]) -> list[str]:
    """Ids of this run's jobs that have not ended, recorded or not."""
    tag = run_tag(run)
    return [job for job, entry in queue.items() if entry.comment == tag and entry.is_alive]


def _cancel_unrecorded(run: Run, queue: dict[str, QueueEntry]) -> None:
    """Ends jobs of this run that jobs.json does not know.

    Their launcher died between sbatch and the record of it: beside the job that now follows they
    would be a second writer, and their dependents wait for nobody.
    """
    recorded = {record.id for record in load_records(run).values()}
    lost = [job for job in _jobs_of(run, queue) if job not in recorded]
    if not lost:
        return
    print(f"cancelled, since the launcher that submitted them died: jobs {', '.join(lost)}")
    _cancel(lost)


def _cancel(ids: list[str]) -> None:
    """Ends jobs, and waits until they have ended."""
    if not ids:
        return
    subprocess.run(["scancel", *ids], check=False)
    for _ in range(ENDING_SECONDS):
        # One that runs still has its block or step to finish, and holds its folder meanwhile.
        queue = squeue()
        if not any(job in queue and queue[job].is_alive for job in ids):
            return
        time.sleep(1)


def _say_skipped(steps: list[Step]) -> None:
    complete = sum(step.complete for step in steps)
    if complete:
        print(f"{complete} of {len(steps)} steps are complete and skipped")


def _print_results(folder: Path) -> None:
    from sad_hpc.aggregate import headline_table

    print(headline_table(folder))
    print(f"tables and figures: {folder}")
