"""`sad-hpc status RUN`: the state of each step, its job and its log.

Markers and heartbeats on disk take precedence over Slurm's answer.
"""

import os
import socket
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

import psutil

from sad_hpc.launch.graph import Step, graph
from sad_hpc.launch.records import JobRecord, load_records
from sad_hpc.launch.slurm import QueueEntry, ask
from sad_hpc.storage.progress import duration, progress_text
from sad_hpc.storage.run import Run

FRESH_SECONDS = 120.0
"""A heartbeat younger than this means that a process works on the step."""
SETTLING_SECONDS = 60.0
"""Delay for which a completed job may lack a visible marker, and a new job may be unknown to Slurm,
since network file systems and accounting lag behind."""

INTERRUPTED = ("BOOT_FAIL", "NODE_FAIL", "PREEMPTED", "TIMEOUT")
"""Slurm's states for an end that the job did not cause; a new launch resumes it."""
LOOK_SECONDS = 5.0
"""Longest age of Slurm's answer for `sad-hpc status`."""
MOST_LOGS = 5
"""Most failures that are shown with their logs."""
BLOCKED_ADVICE = (
    "blocked jobs cannot start as they were submitted (see `scontrol show job ID`): launch again "
    "with other cluster settings, which replaces them"
)


class Kind(StrEnum):
    """The printed state of a step."""

    COMPLETE = "complete"
    RUNNING = "running"
    QUEUED = "queued"
    BLOCKED = "blocked"
    """Queued, and unable to start without a change by the user or the admin."""
    SUBMITTED = "submitted"
    """Submitted, while Slurm does not answer."""
    FAILED = "failed"
    UNFINISHED = "unfinished"
    """Interrupted without an error; a new launch resumes it."""
    STUCK = "stuck"
    """Requires a step that has failed or was interrupted."""
    NOT_STARTED = "not started"
    NOT_NEEDED = "not needed"
    """Not started, since aggregate found the result in the results folder."""


ENDED_BADLY = (Kind.FAILED, Kind.UNFINISHED, Kind.STUCK)
ACTIVE = (Kind.RUNNING, Kind.QUEUED, Kind.BLOCKED, Kind.SUBMITTED)


@dataclass(frozen=True)
class StepState:
    """The line of `status` about a step."""

    step: Step
    kind: Kind
    detail: str = ""
    job: JobRecord | None = None

    @property
    def text(self) -> str:
        """Kind and detail in one phrase."""
        return f"{self.kind} {self.detail}".rstrip()


def show_status(run: Run) -> int:
    """Print a line for each step; return 1 if any has failed or was interrupted."""
    steps, records = graph(run), load_records(run)
    answer = ask(run, steps, records, LOOK_SECONDS)
    states = step_states(steps, records, None if answer.error else answer.jobs)
    _print_table(states)
    if answer.error:
        print(f"states without Slurm's answer: {answer.error}")
    if any(state.kind == Kind.BLOCKED for state in states):
        print(BLOCKED_ADVICE)
    print_failures(states)
    if not any(state.kind in ENDED_BADLY for state in states):
        return 0
    print("launch again to run the incomplete steps; complete steps are kept")
    return 1


def _print_table(states: list[StepState]) -> None:
    """Print a line for each step, and the number of steps in each state."""
    rows = [
        (
            state.step.name,
            state.text,
            f"job {state.job.id}" if state.job else "",
            os.path.relpath(state.job.log) if state.job else "",
        )
        for state in states
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        print("  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip())
    counts = Counter(state.kind for state in states)
    summary = ", ".join(f"{number} {kind}" for kind, number in counts.items())
    print(f"{len(states)} steps: {summary}")


def print_failures(states: list[StepState]) -> None:
    """Print the last lines of the logs of failed steps, at most MOST_LOGS of them."""
    failed = [state for state in states if state.kind in (Kind.FAILED, Kind.UNFINISHED)]
    for state in failed[:MOST_LOGS]:
        print(f"---- {state.step.name}: {state.text}", flush=True)
        if state.job is not None:
            print(state.job.log_tail(), flush=True)
    if len(failed) > MOST_LOGS:
        more = len(failed) - MOST_LOGS
        print(f"---- and {more} more: sad-hpc status lists their logs", flush=True)


def step_states(
    steps: list[Step], records: Mapping[str, JobRecord], jobs: Mapping[str, QueueEntry] | None
) -> list[StepState]:
    """Return the state of every step, in the order of work.

    Args:
        steps: the steps of `graph(run)`.
        records: the records of jobs.json.
        jobs: the jobs that Slurm knows, by `JobRecord.key`; None if Slurm does not answer.
    """
    states: dict[str, StepState] = {}
    for step in steps:
        record = records.get(step.title)
        entry = (jobs or {}).get(record.key) if record and record.executor == "slurm" else None
        kind, detail = _own_state(step, record, entry)
        if kind == Kind.FAILED and jobs is None and record and record.executor == "slurm":
            kind, detail = Kind.SUBMITTED, ""
        if kind in (Kind.FAILED, Kind.UNFINISHED, Kind.NOT_STARTED, Kind.QUEUED):
            upstream = [states[required.title] for required in step.requires]
            broken = next((state for state in upstream if state.kind in ENDED_BADLY), None)
            if broken is not None and not (entry and entry.is_active):
                kind, detail = Kind.STUCK, f"behind {_root(broken)}"
        if kind == Kind.NOT_STARTED and steps[-1].stage == "aggregate" and steps[-1].complete:
            kind = Kind.NOT_NEEDED
        states[step.title] = StepState(step, kind, detail, record)
    return list(states.values())


def _own_state(step: Step, record: JobRecord | None, entry: QueueEntry | None) -> tuple[Kind, str]:
    """Return kind and detail of a step, without regard to its requirements."""
    if step.complete:
        return Kind.COMPLETE, ""
    ended = entry.end if entry and not entry.is_active else None
    if (record is None or ended is not None) and _beats(step, since=ended or 0):
        # A user has started the stage directly.
        return Kind.RUNNING, _progress(step, time.time(), None)
    if record is None:
        progress = step.folder.progress
        if progress is None:
            return Kind.NOT_STARTED, ""
        kind = Kind.UNFINISHED if progress["stopped"] else Kind.FAILED
        return kind, f"(stopped at {_progress(step, time.time(), None)})"
    if entry is not None:
        return _slurm_state(step, record, entry)
    return _recorded_state(step, record)


def _slurm_state(step: Step, record: JobRecord, entry: QueueEntry) -> tuple[Kind, str]:
    if entry.is_waiting:
        reason = f"({entry.reason})" if entry.reason not in ("", "None") else ""
        kind = Kind.BLOCKED if entry.is_blocked else Kind.QUEUED
        return kind, _phrase(reason, _requeued(entry))
    began = entry.start or record.submitted
    if entry.state == "COMPLETING":  # it has ended or was cancelled; its processes are ending
        return Kind.RUNNING, "(ending)"
    if entry.is_active:
        return Kind.RUNNING, _phrase(_progress(step, began, record), _requeued(entry))
    just_ended = entry.end is not None and time.time() - entry.end < SETTLING_SECONDS
    if entry.state == "COMPLETED":
        if just_ended:
            return Kind.RUNNING, "(finishing)"
        return Kind.FAILED, "(no completion marker)"
    if entry.state in INTERRUPTED:
        # Slurm may be about to requeue it.
        return (Kind.QUEUED if just_ended else Kind.UNFINISHED), f"({entry.state})"
    progress = step.folder.progress
    if entry.state == "FAILED" and progress and progress["stopped"] > began:
        return Kind.UNFINISHED, "(stopped by a signal and not requeued)"
    return Kind.FAILED, f"({entry.reason if entry.state == 'PENDING' else entry.state})"


def _recorded_state(step: Step, record: JobRecord) -> tuple[Kind, str]:
    """Return kind and detail of a local job, or of a job that Slurm does not know."""
    if record.runs_here or (not record.is_local and _beats(step, since=record.submitted)):
        return Kind.RUNNING, _progress(step, record.submitted, record)
    if record.is_local and record.interrupted:
        return Kind.UNFINISHED, "(its launch was interrupted)"
    if record.is_local:
        return Kind.FAILED, "(its process ended)"
    if time.time() - record.submitted < SETTLING_SECONDS:
        return Kind.QUEUED, ""
    return Kind.FAILED, "(the job is gone)"


def _progress(step: Step, since: float, record: JobRecord | None) -> str:
    progress = step.folder.progress_since(record.submitted if record else 0)
    if progress is None:
        return ""
    text = progress_text(progress)
    silent = time.time() - max(progress["time"], since)
    lives = record is None or silent < FRESH_SECONDS
    return text if lives else _phrase(text, f"no heartbeat for {duration(silent)}")


def _requeued(entry: QueueEntry) -> str:
    """Return a text such as `requeued 2 times`, by Slurm's count; empty if it never was."""
    times = entry.restarts
    return f"requeued {times} time{'s' if times > 1 else ''}" if times else ""


def _phrase(*parts: str) -> str:
    return ", ".join(part for part in parts if part)


def _beats(step: Step, since: float) -> bool:
    """Return whether a live process has sent a recent heartbeat after `since`."""
    progress = step.folder.progress_since(max(since, time.time() - FRESH_SECONDS))
    if progress is None or progress["stopped"]:
        return False
    elsewhere = progress["host"] != socket.gethostname()
    return elsewhere or psutil.pid_exists(progress["pid"])


def _root(state: StepState) -> str:
    """Return the title of the failed step that a stuck step waits for."""
    return state.detail.removeprefix("behind ") if state.kind == Kind.STUCK else state.step.title
