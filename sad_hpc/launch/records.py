"""jobs.json: which job was started for which step, so that nothing is submitted twice."""

import glob
import socket
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import psutil
from pydantic import Field

from sad_hpc.errors import ERROR_PREFIX, UserError
from sad_hpc.launch.graph import Step
from sad_hpc.storage import plain_json
from sad_hpc.storage.files import Moment, read_whole, typed, write_json
from sad_hpc.storage.run import Run


@dataclass(frozen=True)
class JobRecord:
    """The last job of a step."""

    id: Annotated[str, Field(pattern=r"^\w{1,40}$")]
    """Slurm's id, such as 12 or 12_3, or the process id of a local job."""
    executor: str
    submitted: Moment
    log: Annotated[str, Field(min_length=1)]
    host: str
    done_before: Annotated[float, Field(ge=0, le=1e15)]
    """Units of work that earlier jobs had finished: they say nothing about this job's speed."""
    settings: str = ""
    """Of `settings_of`, where Slurm has the job."""
    memory_gb: float | None = None
    """Of each rank, where it is more than the settings say, for want of which `kills` jobs of the
    step have ended."""
    kills: int = 0
    interrupted: bool = False
    """Whether its launcher was told to stop, and has ended it."""

    @classmethod
    def of(
        cls,
        step: Step,
        job: Any,
        executor: str,
        settings: str = "",
        memory_gb: float | None = None,
        kills: int = 0,
    ) -> "JobRecord":
        """The record of a job that submitit has just started."""
        progress = step.folder.progress
        return cls(
            id=str(job.job_id),
            executor=executor,
            submitted=time.time(),
            log=str(job.task(0).paths.stdout),
            host=socket.gethostname(),
            done_before=progress["done"] if progress else 0,
            settings=settings,
            memory_gb=memory_gb,
            kills=kills,
        )

    @property
    def is_local(self) -> bool:
        """A process of this machine, not a job of Slurm."""
        return self.executor == "local" and self.host == socket.gethostname()

    @property
    def runs_here(self) -> bool:
        """Whether its process, and not a later one of the same number, is alive."""
        if not self.is_local:
            return False
        try:
            process = psutil.Process(int(self.id))
            alive = process.is_running() and process.status() != psutil.STATUS_ZOMBIE
            return alive and process.create_time() <= self.submitted + 1
        except (psutil.NoSuchProcess, ValueError, OverflowError):  # or no process id at all
            return False

    def log_tail(self, lines: int = 20) -> str:
        """The end of the log that tells of the failure: a rank's that reports one, or rank 0's."""
        first = Path(self.log)
        others = sorted(first.parent.glob(f"{self.id}_*{glob.escape(first.suffix)}"))
        logs = {path: _last_lines(path, lines) for path in [first, *others]}
        telling = next((path for path, text in logs.items() if ERROR_PREFIX in text), first)
        return f"{telling}:\n{logs[telling] or '(empty: the job did not start)'}"


def _last_lines(path: Path, lines: int) -> str:
    try:
        text = read_whole(path).decode(errors="replace")
    except OSError:
        return ""
    return "\n".join(text.splitlines()[-lines:])


def load_records(run: Run) -> dict[str, JobRecord]:
    """The last job of each step, by the step's title.

    Raises:
        UserError: jobs.json is there, but the disk does not give it away.
    """
    path = run.path / "jobs.json"
    try:
        content = plain_json.parse(read_whole(path, plain_json.MAX_BYTES))
    except (FileNotFoundError, ValueError):
        return {}
    except OSError as error:
        # Jobs that nobody has recorded would be taken for those of a dead launcher, and cancelled.
        raise UserError(
            f"cannot read {path}: {error.strerror}; it says which jobs are this run's: try again "
            "when its disk answers"
        ) from error
    stored = typed(dict[str, Any], content) or {}
    records = {title: typed(JobRecord, entry) for title, entry in stored.items()}
    return {title: record for title, record in records.items() if record is not None}


def save_records(run: Run, new: Mapping[str, JobRecord]) -> None:
    """Adds or replaces records.

    Raises:
        UserError: jobs.json cannot be written.
    """
    records = {**load_records(run), **new}
    write_json(run.path / "jobs.json", {title: asdict(job) for title, job in records.items()})
