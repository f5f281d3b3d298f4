"""jobs.json: the last job of each step, so that no step is submitted twice."""

import glob
import socket
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import psutil
from pydantic import Field

from sad_hpc.errors import ERROR_PREFIX, UserError
from sad_hpc.launch.graph import Step
from sad_hpc.storage.json_files import Moment, parse_json, typed, write_json
from sad_hpc.storage.run import Run

SHOWN_LINES = 20
"""Last lines of a log that are shown."""

LOG_BYTES = 2**16
"""Bytes at the end of a log that are read; an environment may print much."""


@dataclass(frozen=True)
class JobRecord:
    """The last job of a step."""

    id: Annotated[str, Field(pattern=r"^\w{1,40}$")]
    """Slurm's id, such as 12 or 12_3, or the process id of a local job."""
    executor: str
    submitted: Moment
    log: Annotated[str, Field(min_length=1)]
    host: str
    settings: str = ""
    """Value of `settings_of` for a Slurm job."""
    memory_gb: float | None = None
    """Memory of each rank if it exceeds the cluster settings (see `memory_retry`)."""
    kills: int = 0
    """Number of the step's jobs that were killed for memory."""
    cluster: str | None = None
    """The cluster to which Slurm was told to send the job; None: that of the launcher's machine."""
    interrupted: bool = False
    """True if an interrupted launcher has ended the job."""

    @classmethod
    def of(
        cls,
        job: Any,
        executor: str,
        settings: str = "",
        memory_gb: float | None = None,
        kills: int = 0,
        cluster: str | None = None,
    ) -> "JobRecord":
        """Return the record of a job that submitit has just started."""
        return cls(
            id=str(job.job_id),
            executor=executor,
            submitted=time.time(),
            log=str(job.task(0).paths.stdout),
            host=socket.gethostname(),
            settings=settings,
            memory_gb=memory_gb,
            kills=kills,
            cluster=cluster,
        )

    @property
    def key(self) -> str:
        """The id, preceded by the cluster that the launch named: clusters share ids."""
        return self.id if self.cluster is None else f"{self.cluster}:{self.id}"

    @property
    def is_local(self) -> bool:
        """True if the job is a process of this machine, not a Slurm job."""
        return self.executor == "local" and self.host == socket.gethostname()

    @property
    def runs_here(self) -> bool:
        """True if the job's process is alive; a later process with the same id does not count."""
        if not self.is_local:
            return False
        try:
            process = psutil.Process(int(self.id))
            alive = process.is_running() and process.status() != psutil.STATUS_ZOMBIE
            return alive and process.create_time() <= self.submitted + 1
        except (psutil.NoSuchProcess, ValueError, OverflowError):  # ended, or an invalid id
            return False

    def log_tail(self) -> str:
        """Return the end of the first rank's log that reports an error, or else of rank 0's."""
        first = Path(self.log)
        others = sorted(first.parent.glob(f"{self.id}_*{glob.escape(first.suffix)}"))
        logs = {path: _last_lines(path) for path in [first, *others]}
        telling = next((path for path, text in logs.items() if ERROR_PREFIX in text), first)
        return f"{telling}:\n{logs[telling] or '(empty: the job did not start)'}"


def _last_lines(path: Path) -> str:
    return "\n".join(log_end(path).splitlines()[-SHOWN_LINES:])


def log_end(path: Path) -> str:
    """Return the text of the last LOG_BYTES of a log; empty if it cannot be read."""
    try:
        with path.open("rb") as handle:
            handle.seek(max(0, handle.seek(0, 2) - LOG_BYTES))
            return handle.read().decode(errors="replace")
    except OSError:
        return ""


def load_records(run: Run) -> dict[str, JobRecord]:
    """Return the last job of each step, by the step's title.

    Raises:
        UserError: jobs.json exists but cannot be read.
    """
    path = run.path / "jobs.json"
    try:
        content = parse_json(path)
    except (FileNotFoundError, ValueError):
        return {}
    except OSError as error:
        # Without records, a launch would cancel the run's jobs as those of a dead launcher.
        raise UserError(
            f"cannot read {path}: {error.strerror}; try again when the disk works"
        ) from error
    stored = typed(dict[str, Any], content) or {}
    records = {title: typed(JobRecord, entry) for title, entry in stored.items()}
    return {title: record for title, record in records.items() if record is not None}


def queued_records(steps: Iterable[Step], records: Mapping[str, JobRecord]) -> list[JobRecord]:
    """Return the last jobs of incomplete steps that are Slurm's."""
    known = [records[step.title] for step in steps if step.title in records and not step.complete]
    return [record for record in known if record.executor == "slurm"]


def save_records(run: Run, new: Mapping[str, JobRecord]) -> None:
    """Add or replace records.

    Raises:
        UserError: jobs.json cannot be written.
    """
    records = {**load_records(run), **new}
    write_json(run.path / "jobs.json", {title: asdict(job) for title, job in records.items()})
