"""Waiting for the jobs of a run in Slurm, with a line for each change."""

import time
from collections.abc import Mapping

from sad_hpc.launch.graph import Step
from sad_hpc.launch.local import say
from sad_hpc.launch.records import JobRecord, load_records
from sad_hpc.launch.slurm import QueueEntry, ask
from sad_hpc.launch.status import ACTIVE, BLOCKED_ADVICE, Kind, print_failures, step_states
from sad_hpc.storage.files import wait_until_seen
from sad_hpc.storage.lock import is_held
from sad_hpc.storage.run import Run

LOOK_SECONDS = 2.0
"""Time between two reads of the completion markers, which do not load Slurm."""


def wait_for_jobs(run: Run, steps: list[Step]) -> bool:
    """Wait until no step is queued or running; return whether all are complete.

    Each change prints a line.  The reason for which jobs wait is printed once for all jobs that
    share it.  The end of the failed steps' logs is printed when all jobs have ended.  No job counts
    as lost before Slurm has answered once.  The function also waits for jobs that another launch
    submits meanwhile.
    """
    shown: dict[str, Kind] = {}
    heard = {"queued", "queued (Dependency)"}
    jobs: dict[str, QueueEntry] | None = None
    silence = ""
    while True:
        records = load_records(run)
        answer = ask(run, steps, records)
        if answer.error and answer.error != silence:
            # slurmctld may be restarting; the jobs continue.
            say(f"still waiting, although {answer.error}")
        silence = answer.error
        jobs = jobs if silence else answer.jobs
        states = step_states(steps, records, jobs)
        for state in states:
            kind = Kind.QUEUED if state.kind == Kind.BLOCKED else state.kind
            is_new_reason = kind == Kind.QUEUED and state.text not in heard
            if is_new_reason or shown.get(state.step.title, Kind.QUEUED) != kind:
                say(f"{state.step.name}: {state.text}")
            if is_new_reason:
                heard.add(state.text)
                if state.kind == Kind.BLOCKED:
                    say(BLOCKED_ADVICE)
            shown[state.step.title] = kind
        complete = all(state.kind == Kind.COMPLETE for state in states)
        if not any(state.kind in ACTIVE for state in states):
            if complete or not launched_again(run, records):
                break
            continue
        time.sleep(LOOK_SECONDS)
    print_failures(states)
    return complete


def launched_again(run: Run, records: Mapping[str, JobRecord]) -> bool:
    """Return whether another launch has recorded jobs since `records` were read.

    The function waits up to a minute for a launch that is submitting.
    """
    wait_until_seen(lambda: not is_held(run.path))
    return load_records(run) != records
