"""The state of each step: from markers and heartbeats on disk first, from Slurm second."""

import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import psutil

from sad_hpc.launch.graph import Step
from sad_hpc.launch.queue import QueueEntry
from sad_hpc.launch.records import JobRecord

FRESH_SECONDS = 120.0
"""A heartbeat younger than this means that somebody works on the step."""
SETTLING_SECONDS = 60.0
"""How long a job that Slurm calls completed may go without a visible marker, or a new job without
being known to Slurm: network file systems and accounting lag behind."""

ENDED_BADLY = ("failed", "unfinished", "stuck")
INTERRUPTED = ("BOOT_FAIL", "NODE_FAIL", "PREEMPTED", "TIMEOUT")
"""Slurm's words for an end that is not the job's own fault, and from which a launch goes on."""
ACTIVE = ("running", "queued", "blocked")
BLOCKED_ADVICE = (
    "blocked jobs do not start as they were submitted (`scontrol show job ID` says more): launch "
    "with cluster settings that fit, which replaces them"
)


@dataclass(frozen=True)
class StepState:
    """What `status` shows of a step."""

    step: Step
    kind: str
    """complete, running, queued, blocked, submitted, failed, unfinished, stuck or not started."""
    detail: str = ""
    job: JobRecord | None = None

    @property
    def text(self) -> str:
        """Kind and detail in one phrase."""
        return f"{self.kind} {self.detail}".rstrip()


def step_states(
    steps: list[Step], records: Mapping[str, JobRecord], jobs: Mapping[str, QueueEntry] | None
) -> list[StepState]:
    """The state of every step, in the order of work.

    Args:
        steps: of `graph(run)`.
        records: of jobs.json.
        jobs: what Slurm says, by job id; None if it does not answer.
    """
    states: dict[str, StepState] = {}
    for step in steps:
        record = records.get(step.title)
        entry = (jobs or {}).get(record.id) if record and record.executor == "slurm" else None
        kind, detail = _own_state(step, record, entry)
        if kind == "failed" and jobs is None and record and record.executor == "slurm":
            kind, detail = "submitted", ""
        if kind in ("failed", "unfinished", "not started", "queued"):
            upstream = [states[required.title] for required in step.requires]
            broken = next((state for state in upstream if state.kind in ENDED_BADLY), None)
            if broken is not None and not (entry and entry.is_active):
                kind, detail = "stuck", f"behind {_root(broken)}"
        states[step.title] = StepState(step, kind, detail, record)
    return list(states.values())


def progress_text(progress: Mapping[str, Any] | None, since: float, done_before: float) -> str:
    """`45 % 900/2,000 blocks, 3 min left` of a heartbeat; empty without one.

    Args:
        progress: the heartbeat.
        since: when the job started.
        done_before: units of work that were finished by then.
    """
    if not progress or not progress["total"]:
        return ""
    done, total = progress["done"], progress["total"]
    text = f"{100 * done / total:.0f} % {done:,.6g}/{total:,.6g} {progress['unit']}"
    gained, elapsed = done - done_before, progress["time"] - since
    if gained > 0 and elapsed > 0 and done < total:
        text += f", {duration((total - done) * elapsed / gained)} left"
    return text


def duration(seconds: float) -> str:
    """`12 s`, `3 min` or `1 h 05 min`."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60:02d} min"


def _own_state(step: Step, record: JobRecord | None, entry: QueueEntry | None) -> tuple[str, str]:
    """Kind and detail of a step, as if its requirements were all well."""
    if step.complete:
        return "complete", ""
    ended = entry.end if entry and not entry.is_active else None
    if (record is None or ended is not None) and _beats(step, since=ended or 0):
        # Somebody has started the stage by hand.
        return "running", _progress(step, time.time(), None)
    if record is None:
        stopped = _progress(step, time.time(), None)
        return ("failed", f"(stopped at {stopped})") if stopped else ("not started", "")
    if entry is not None:
        return _slurm_state(step, record, entry)
    return _recorded_state(step, record)


def _slurm_state(step: Step, record: JobRecord, entry: QueueEntry) -> tuple[str, str]:
    if entry.is_waiting:
        reason = f"({entry.reason})" if entry.reason not in ("", "None") else ""
        kind = "blocked" if entry.is_blocked else "queued"
        return kind, _phrase(reason, _requeued(step, record, waiting=True))
    if entry.is_active:
        progress = _progress(step, entry.start or record.submitted, record)
        return "running", _phrase(progress, _requeued(step, record, waiting=False))
    just_ended = entry.end is not None and time.time() - entry.end < SETTLING_SECONDS
    if entry.state == "COMPLETED":
        return ("running", "(finishing)") if just_ended else ("failed", "(no completion marker)")
    if entry.state in INTERRUPTED:
        # Slurm may be about to queue it again.
        return ("queued" if just_ended else "unfinished"), f"({entry.state})"
    stopped = (step.folder.progress or {}).get("stopped", 0)
    if entry.state == "FAILED" and stopped > (entry.start or record.submitted):
        return "unfinished", "(stopped by a signal, and not queued again)"
    return "failed", f"({entry.reason if entry.state == 'PENDING' else entry.state})"


def _recorded_state(step: Step, record: JobRecord) -> tuple[str, str]:
    """Of a local job, or of a Slurm job that Slurm does not know (any more, or yet)."""
    local = record.executor == "local" and record.host == socket.gethostname()
    if process_runs(record) if local else _beats(step, since=record.submitted):
        return "running", _progress(step, record.submitted, record)
    if local:
        return "failed", "(its process ended)"
    if time.time() - record.submitted < SETTLING_SECONDS:
        return "queued", ""
    return "failed", "(the job is gone)"


def _progress(step: Step, since: float, record: JobRecord | None) -> str:
    progress = step.folder.progress
    if not progress or (record and progress["time"] < record.submitted):
        return ""  # no heartbeat, or one of an earlier job
    text = progress_text(progress, since, record.done_before if record else 0)
    silent = time.time() - max(progress["time"], since)
    lives = record is None or silent < FRESH_SECONDS
    return text if lives else _phrase(text, f"no heartbeat for {duration(silent)}")


def _requeued(step: Step, record: JobRecord, waiting: bool) -> str:
    """`requeued 2 times` of a job that has sent heartbeats, from the last of them."""
    progress = step.folder.progress
    if not progress or progress["time"] < record.submitted:
        return ""
    # While it waits, its next start is one that the heartbeat does not know of.
    times = progress.get("requeued", 0) + waiting
    return f"requeued {times} time{'s' if times > 1 else ''}" if times else ""


def _phrase(*parts: str) -> str:
    return ", ".join(part for part in parts if part)


def process_runs(record: JobRecord) -> bool:
    """Whether a local job's process, and not a later one of the same number, is alive."""
    try:
        process = psutil.Process(int(record.id))
        alive = process.is_running() and process.status() != psutil.STATUS_ZOMBIE
        return alive and process.create_time() <= record.submitted + 1
    except psutil.NoSuchProcess:
        return False


def _beats(step: Step, since: float) -> bool:
    """Whether a living process has sent a heartbeat after `since`, and lately."""
    progress = step.folder.progress
    if not progress or progress["time"] < max(since, time.time() - FRESH_SECONDS):
        return False
    elsewhere = progress["host"] != socket.gethostname()
    return elsewhere or psutil.pid_exists(progress["pid"])


def _root(state: StepState) -> str:
    """The failure at the bottom of a stuck step."""
    return state.detail.removeprefix("behind ") if state.kind == "stuck" else state.step.title
