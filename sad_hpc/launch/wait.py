"""`sad-hpc launch --wait` under Slurm: a line for each change, until every job has ended."""

import time

from sad_hpc.launch.graph import Step
from sad_hpc.launch.queue import QueueEntry
from sad_hpc.launch.records import load_records
from sad_hpc.launch.state import ACTIVE, BLOCKED_ADVICE, StepState, step_states
from sad_hpc.launch.watch import ask
from sad_hpc.storage.run import Run

MOST_LOGS = 5
"""So many failures are shown with their logs."""

MARKER_SECONDS = 2.0
"""Between two looks at completion markers, which cost the cluster nothing."""


def wait_for_jobs(run: Run, steps: list[Step]) -> bool:
    """Waits until no step is queued or running; whether all are complete.

    Why jobs wait in the queue is said once for all that share the reason.
    Steps that failed are reported with the last lines of their logs, when all others have ended.
    As long as Slurm has not answered at all, no job is taken for lost.
    """
    records = load_records(run)
    shown: dict[str, str] = {}
    heard = {"queued", "queued (Dependency)"}
    jobs: dict[str, QueueEntry] | None = None
    silence = ""
    while True:
        answer = ask(run, steps, records)
        if answer.error and answer.error != silence:
            # slurmctld may be restarting; the jobs go on.
            say(f"still waiting, although {answer.error}")
        silence = answer.error
        jobs = jobs if silence else answer.jobs
        states = step_states(steps, records, jobs)
        for state in states:
            kind = "queued" if state.kind == "blocked" else state.kind
            is_new_reason = kind == "queued" and state.text not in heard
            if is_new_reason or shown.get(state.step.title, "queued") != kind:
                say(f"{state.step.name}: {state.text}")
            if is_new_reason:
                heard.add(state.text)
                if state.kind == "blocked":
                    say(BLOCKED_ADVICE)
            shown[state.step.title] = kind
        if not any(state.kind in (*ACTIVE, "submitted") for state in states):
            break
        time.sleep(MARKER_SECONDS)
    print_failures(states)
    return all(state.kind == "complete" for state in states)


def print_failures(states: list[StepState]) -> None:
    """The last lines of the logs of steps that failed, of the first few if many have."""
    failed = [state for state in states if state.kind in ("failed", "unfinished")]
    for state in failed[:MOST_LOGS]:
        print(f"---- {state.step.name}: {state.text}", flush=True)
        if state.job is not None:
            print(state.job.log_tail(), flush=True)
    if len(failed) > MOST_LOGS:
        print(
            f"---- and {len(failed) - MOST_LOGS} more: sad-hpc status names their logs", flush=True
        )


def say(text: str) -> None:
    """Prints a line with the time of day."""
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)
