"""What Slurm says about a run's jobs, asked at most once in 30 s by all who look at the run."""

import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass

from sad_hpc.errors import SadError
from sad_hpc.launch.graph import Step
from sad_hpc.launch.queue import QueueEntry, find_jobs
from sad_hpc.launch.records import JobRecord
from sad_hpc.storage.files import read_json, typed, write_json
from sad_hpc.storage.run import Run

ASK_SECONDS = 30.0
ANSWER = ".slurm.json"


@dataclass(frozen=True)
class Answer:
    """Slurm's last word."""

    asked: float
    """Seconds since the epoch."""
    jobs: dict[str, QueueEntry]
    """Those that Slurm knows, by id."""
    error: str = ""
    """Why Slurm is silent."""


def ask(run: Run, steps: Iterable[Step], records: Mapping[str, JobRecord]) -> Answer:
    """What Slurm says about the jobs of incomplete steps; a young answer is not asked for again."""
    jobs_of = [records[step.title] for step in steps if step.title in records and not step.complete]
    ids = [record.id for record in jobs_of if record.executor == "slurm"]
    if not ids:
        return Answer(time.time(), {})
    last = _last(run)
    if last is not None and 0 <= time.time() - last.asked < ASK_SECONDS:
        return last
    jobs, error = {}, ""
    try:
        jobs = find_jobs(ids)
    except SadError as failure:
        error = str(failure)
    answer = Answer(time.time(), jobs, error)
    with suppress(SadError):  # whoever may only read the run may look at it, too
        write_json(run.path / ANSWER, asdict(answer))
    return answer


def _last(run: Run) -> Answer | None:
    return typed(Answer, read_json(run.path / ANSWER))
