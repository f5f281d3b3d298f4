"""Wrappers around squeue, sacct, scontrol and scancel."""

import os
import re
import subprocess
import time
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import datetime

from sad_hpc.errors import UserError
from sad_hpc.launch.environment import client_environment
from sad_hpc.launch.graph import Step
from sad_hpc.launch.records import JobRecord, queued_records
from sad_hpc.storage.json_files import Moment, read_json, typed, write_json
from sad_hpc.storage.run import Run

WAITING = (
    *("PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "RESV_DEL_HOLD"),
    "SPECIAL_EXIT",
)
RUNNING = ("RUNNING", "COMPLETING", "RESIZING", "SIGNALING", "STAGE_OUT", "STOPPED", "SUSPENDED")

BLOCKING = re.compile(
    r"BadConstraints|Partition(Config|NodeLimit|TimeLimit)|(Account|QOS)NotAllowed"
    r"|Invalid(Account|QOS|Reservation)|Reservation(Deleted|Invalid)|RequiresReservation"
    r"|(Assoc|QOS)Max\w*Per(Job|Node)(Limit)?|QOSMin\w+|MaxMemPerLimit"
    r"|JobHeld(User|Admin)|JobHoldMaxRequeue|.*requeued( in)?[ _]held( state)?"
    r"|Reservation .* (was deleted|is invalid)"
)
"""Reasons for which a pending job cannot start as it was submitted.  They exclude limits on current
use, which pass when other jobs end, and nodes that are down."""

LARGEST_ARRAY = 1000
"""Most elements of an array if Slurm reports no limit; Slurm's default is 1001."""

GRACE_SECONDS = 20
"""Timeout of a query by a preempted job, whose grace time is short."""

ENDING_SECONDS = 120
"""Longest wait for a cancelled job to end."""

OWN_JOBS = ("squeue", "--noheader", "--array", "--all", f"--user={os.getuid()}")
"""Command for this user's jobs; without `--all` those in hidden partitions are left out."""

ASK_SECONDS = 30.0
ANSWER = ".slurm.json"


@dataclass(frozen=True)
class QueueEntry:
    """The state of a job in squeue or sacct."""

    state: str
    """Slurm's name of the state, such as RUNNING or OUT_OF_MEMORY."""
    start: Moment | None = None
    end: Moment | None = None
    reason: str = ""
    """Slurm's reason for which the job is pending."""
    comment: str = ""
    """The comment (`sbatch --comment`)."""
    restarts: int = 0
    """Number of times that Slurm has requeued the job."""

    @property
    def is_waiting(self) -> bool:
        """True if the job is pending and its dependencies can still be satisfied."""
        return self.state in WAITING and self.reason != "DependencyNeverSatisfied"

    @property
    def is_blocked(self) -> bool:
        """True if the job is pending for a reason that needs a change by the user or the admin."""
        return self.is_waiting and BLOCKING.fullmatch(self.reason) is not None

    @property
    def is_alive(self) -> bool:
        """True if the job has not ended."""
        return self.state in (*WAITING, *RUNNING)

    @property
    def is_active(self) -> bool:
        """True if the job is waiting or running."""
        return self.is_waiting or self.state in RUNNING


@dataclass(frozen=True)
class Answer:
    """Slurm's last answer about a run's jobs."""

    asked: Moment
    jobs: dict[str, QueueEntry]
    """The jobs that Slurm knows, by `JobRecord.key`."""
    error: str = ""
    """The error if Slurm did not answer."""


def squeue(cluster: str | None = None) -> dict[str, QueueEntry]:
    """Return this user's jobs by id (`12`, or `12_3` in an array), including recently ended ones.

    Args:
        cluster: Slurm's name of the cluster; None: that of this machine's slurm.conf.

    Raises:
        UserError: Slurm's controller does not answer.
    """
    command = [*OWN_JOBS, "--states=all"]
    entries = {}
    for line in answer_lines(on(cluster, [*command, "--format=%i|%T|%S|%e|%k|%r"])):
        if line.count("|") < 5:  # the rest of a comment with a line break, or a cluster's heading
            continue
        job, state, start, end, comment, reason = line.split("|", 5)
        entries[job] = QueueEntry(state, _seconds(start), _seconds(end), reason, comment)
    return entries


def restarts(cluster: str | None = None) -> dict[str, int]:
    """Return how often Slurm has requeued each of this user's jobs, by id; empty on an error."""
    try:
        lines = answer_lines(on(cluster, [*OWN_JOBS, "--Format=JobArrayID:40,RestartCnt:20"]))
    except UserError:
        return {}
    counts = [line.split() for line in lines]
    return {each[0]: int(each[1]) for each in counts if len(each) == 2 and each[1].isdigit()}


def sacct(ids: Collection[str], cluster: str | None = None) -> dict[str, QueueEntry]:
    """Return those of `ids` that Slurm's accounting knows; none on a cluster without accounting."""
    if not ids:
        return {}
    parents = ",".join(sorted({job.partition("_")[0] for job in ids}))
    command = ["sacct", "--noheader", "--parsable2", "--allocations", f"--jobs={parents}"]
    try:
        lines = answer_lines(on(cluster, [*command, "--format=JobID,State,Start,End"]))
    except UserError:
        return {}
    entries = {}
    for line in lines:
        job, state, start, end = line.split("|")
        if job in ids:
            # "CANCELLED by 1000" names the user; the first word is the state.
            entries[job] = QueueEntry(state.split()[0], _seconds(start), _seconds(end))
    return entries


def find_jobs(ids: Collection[str], cluster: str | None = None) -> dict[str, QueueEntry]:
    """Return those of `ids` that Slurm's controller or its accounting knows.

    Raises:
        UserError: neither of them answers.
    """
    try:
        queued = squeue(cluster)
    except UserError:
        # The controller may be restarting.  Accounting may answer, but does not list each element
        # of a pending array.
        recorded = sacct(ids, cluster)
        if set(recorded) >= set(ids):
            return recorded
        raise
    known = {job: queued[job] for job in ids if job in queued}
    return known | sacct([job for job in ids if job not in known], cluster)


def has_ended_badly(record: JobRecord | None) -> bool:
    """Return whether Slurm reports that a step's last job failed; False for unknown jobs."""
    if record is None or record.executor != "slurm":
        return False
    try:
        entry = find_jobs([record.id], record.cluster).get(record.id)
    except UserError:
        return False
    return entry is not None and not entry.is_alive and entry.state != "COMPLETED"


def ask(
    run: Run, steps: Iterable[Step], records: Mapping[str, JobRecord], seconds: float | None = None
) -> Answer:
    """Return Slurm's answer about the jobs of incomplete steps.

    Processes that query the same run share an answer for `seconds`, by default ASK_SECONDS.
    """
    queued = queued_records(steps, records)
    if not queued:
        return Answer(time.time(), {})
    patience = ASK_SECONDS if seconds is None else seconds
    last = typed(Answer, read_json(run.path / ANSWER))
    if last is not None and 0 <= time.time() - last.asked < patience:
        return last
    jobs: dict[str, QueueEntry] = {}
    error = ""
    try:
        groups = ids_by_cluster(queued).items()
        found = {cluster: _with_restarts(ids, cluster) for cluster, ids in groups}
        jobs = {r.key: found[r.cluster][r.id] for r in queued if r.id in found[r.cluster]}
    except UserError as failure:
        error = str(failure)
    answer = Answer(time.time(), jobs, error)
    with suppress(UserError):  # users with read-only access may also query
        write_json(run.path / ANSWER, asdict(answer))
    return answer


def _with_restarts(ids: Collection[str], cluster: str | None) -> dict[str, QueueEntry]:
    """Return those of `ids` that Slurm knows, with their numbers of requeues."""
    found = find_jobs(ids, cluster)
    if not any(entry.is_alive for entry in found.values()):
        return found
    counts = restarts(cluster)
    return {id: replace(job, restarts=counts.get(id, 0)) for id, job in found.items()}


def ids_by_cluster(records: Iterable[JobRecord]) -> dict[str | None, list[str]]:
    """Return the ids of Slurm jobs by the cluster that the launch named."""
    found: dict[str | None, list[str]] = {}
    for record in records:
        found.setdefault(record.cluster, []).append(record.id)
    return found


def cancel(ids: Collection[str], cluster: str | None = None) -> None:
    """Cancel jobs, and wait until they have ended."""
    if not ids:
        return
    subprocess.run(on(cluster, ["scancel", *ids]), check=False, env=client_environment())
    for _ in range(ENDING_SECONDS):
        # A running job first finishes its block or step, and holds its folder's lock meanwhile.
        queue = squeue(cluster)
        if not any(job in queue and queue[job].is_alive for job in ids):
            return
        time.sleep(1)


def largest_array(cluster: str | None = None) -> int:
    """Return the largest array size of a cluster (MaxArraySize, max_array_tasks)."""
    try:
        lines = answer_lines(on(cluster, ["scontrol", "show", "config"]))
    except UserError:
        return LARGEST_ARRAY
    found = re.findall(r"\b(?:MaxArraySize *=|max_array_tasks=) *(\d+)", "\n".join(lines))
    # 0 means that the cluster has no arrays.
    return max(1, min(map(int, found), default=LARGEST_ARRAY))


def must_queue_itself(asked: bool) -> bool:
    """Return whether this process's job has to requeue itself after a signal.

    A job that is preempted with a grace time gets TERM while its state is RUNNING.  If it ends by
    itself in that time, Slurm does not restart it.  A job that is cancelled, requeued or out of
    time is no longer RUNNING when TERM arrives.

    Args:
        asked: whether the signal asks for a requeue; a job that is cancelled since gets none.
    """
    state = _own_state()
    return state != "CANCELLED" if asked else state == "RUNNING"


def _own_state() -> str | None:
    """Return the state of this process's job; None without a job or an answer."""
    job = os.environ.get("SLURM_JOB_ID")
    if job is None:
        return None
    try:
        lines = answer_lines(["scontrol", "show", "job", "--oneliner", job], GRACE_SECONDS)
    except UserError:
        return None
    # The id of an array's first element selects the whole array, with one line for each element.
    own = next((line for line in lines if line.startswith(f"JobId={job} ")), "")
    found = re.search(r" JobState=(\w+)", own)
    return found[1] if found else None


def on(cluster: str | None, command: list[str]) -> list[str]:
    """Return one of Slurm's commands for a named cluster; None: that of this machine."""
    return command if cluster is None else [command[0], f"--clusters={cluster}", *command[1:]]


def answer_lines(command: list[str], seconds: float = 60) -> list[str]:
    """Return the non-empty output lines of one of Slurm's commands.

    Raises:
        UserError: the command is missing, fails, or does not answer in time.
    """
    try:
        result = subprocess.run(
            command,
            env=client_environment(),
            capture_output=True,
            encoding="utf-8",
            errors="replace",  # comments may contain any bytes
            check=True,
            timeout=seconds,
        )
    except FileNotFoundError:
        raise UserError(f"{command[0]} is not on the PATH: is this a machine with Slurm?") from None
    except subprocess.TimeoutExpired:
        raise UserError(f"{command[0]} did not answer in {seconds:.0f} s; try again") from None
    except subprocess.CalledProcessError as error:
        reason = " ".join(error.stderr.split())
        raise UserError(f"{command[0]} failed: {reason}; check Slurm with `sinfo`") from None
    return [line for line in result.stdout.splitlines() if line.strip()]


def _seconds(stamp: str) -> float | None:
    try:
        return datetime.fromisoformat(stamp).timestamp()
    except ValueError:  # N/A, Unknown, None
        return None
