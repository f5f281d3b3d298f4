"""`sad-hpc launch --wait` under Slurm: a line for each change, until every job has ended."""

import time
from collections.abc import Collection

from sad_hpc.errors import SadError
from sad_hpc.launch.graph import Step
from sad_hpc.launch.queue import QueueEntry, sacct, squeue
from sad_hpc.launch.records import load_records
from sad_hpc.launch.state import ACTIVE, StepState, step_states
from sad_hpc.run import Run

MARKER_SECONDS = 2.0
"""Between two looks at completion markers, which cost the cluster nothing."""
SQUEUE_SECONDS = 10.0
SACCT_SECONDS = 30.0


def wait_for_jobs(run: Run, steps: list[Step]) -> bool:
    """Waits until no step is queued or running; whether all are complete.

    Steps that failed are reported with the last lines of their logs, when all others have ended.
    """
    records = load_records(run)
    watch = QueueWatch()
    shown: dict[str, str] = {}
    while True:
        open_titles = [step.title for step in steps if not step.complete]
        jobs = watch.look([records[title].id for title in open_titles if title in records])
        states = step_states(steps, records, jobs)
        for state in states:
            if shown.get(state.step.title, "queued") != state.kind:
                shown[state.step.title] = state.kind
                say(f"{state.step.title}: {state.text}")
        if not any(state.kind in ACTIVE for state in states):
            break
        time.sleep(MARKER_SECONDS)
    for state in states:
        if state.kind in ("failed", "unfinished"):
            print_failure(state)
    return all(state.kind == "complete" for state in states)


def print_failure(state: StepState) -> None:
    """The last lines of a failed step's log."""
    print(f"---- {state.step.title}: {state.text}", flush=True)
    if state.job is not None:
        print(state.job.log_tail(), flush=True)


def say(text: str) -> None:
    """Prints a line with the time of day."""
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)


class QueueWatch:
    """Asks Slurm no more often than it must."""

    def __init__(self) -> None:
        self._jobs: dict[str, QueueEntry] = {}
        self._asked = self._asked_accounting = float("-inf")

    def look(self, ids: Collection[str]) -> dict[str, QueueEntry]:
        """The state of jobs, as Slurm told it lately."""
        if time.monotonic() - self._asked >= SQUEUE_SECONDS:
            try:
                self._ask(ids)
            except SadError as error:
                # slurmctld may be restarting; the jobs go on.
                say(f"still waiting, although {error}")
            self._asked = time.monotonic()
        return self._jobs

    def _ask(self, ids: Collection[str]) -> None:
        queued = squeue()
        gone = {job: entry for job, entry in self._jobs.items() if job not in queued}
        unsure = [
            job for job in ids if job not in queued and (job not in gone or gone[job].is_active)
        ]
        if unsure and time.monotonic() - self._asked_accounting >= SACCT_SECONDS:
            self._asked_accounting = time.monotonic()
            for job in unsure:
                gone.pop(job, None)
            gone |= sacct(unsure)
        self._jobs = {**gone, **queued}
