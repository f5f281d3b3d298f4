"""One writer a folder: whoever works in it holds its lock, and tells those who come second.

The kernel releases the lock when its holder dies, however it dies, so that nobody has to clean up.
Where a file system knows no locks, a file that is there is the lock: what a dead process left is
taken over on its own node if the file system can exchange two names, and else removed by hand.
"""

import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from filelock import BaseFileLock, FileLock, SoftFileLock, Timeout

from sad_hpc.errors import UserError
from sad_hpc.parallel import preemption
from sad_hpc.parallel.ranks import environment_number
from sad_hpc.storage.files import has_locks, read_json, typed, write_error, write_json
from sad_hpc.storage.ownership import check_ownership

LOCK, SOFT_LOCK = ".lock", ".in-use"
HOLDER, HEARTBEAT = ".holder.json", "progress.json"

REQUEUED_SECONDS = 120.0
"""How long a job that was queued again waits for a sign of life of its earlier start."""


@dataclass(frozen=True)
class Holder:
    """A process that works in a folder."""

    host: str
    pid: int
    job: str
    """Slurm's id, or empty."""
    since: str
    """Local time."""

    @classmethod
    def here(cls) -> "Holder":
        """This process."""
        job = os.environ.get("SLURM_JOB_ID", "")
        since = time.strftime("%Y-%m-%d %H:%M:%S")
        return cls(socket.gethostname(), os.getpid(), job, since)

    @classmethod
    def of(cls, folder: Path) -> str:
        """Who holds a folder, in words; it may have begun a moment ago and not have said so yet."""
        holder = typed(cls, read_json(folder / HOLDER))
        if holder is None:
            return "another process"
        job = f" (job {holder.job})" if holder.job else ""
        return f"process {holder.pid} on {holder.host}{job}, since {holder.since}"


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Within this block nobody else works in `folder`, which is created if need be.

    Raises:
        UserError: somebody does; another user could change the folder; or it cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        check_ownership(folder)
        lock = _acquired(folder)
    except OSError as error:
        raise write_error(folder / LOCK, error) from error
    try:
        write_json(folder / HOLDER, asdict(Holder.here()))
        yield
    finally:
        with suppress(OSError):
            (folder / HOLDER).unlink(missing_ok=True)
        lock.release()


def _acquired(folder: Path) -> BaseFileLock:
    """The folder's lock.

    A job that lost its node is started again, and its first processes may live on: the second start
    waits for as long as they send heartbeats.

    Raises:
        UserError: somebody else holds it, or nobody shows signs of life.
        Preempted: a signal came while it waited.
    """
    lock: BaseFileLock = (
        FileLock(folder / LOCK) if has_locks(folder) else SoftFileLock(folder / SOFT_LOCK)
    )
    # Clocks of nodes and file servers differ: a heartbeat that changes is a sign of life.
    seen, alive = _last_heartbeat(folder), time.monotonic()
    was_requeued = environment_number("SLURM_RESTART_COUNT", 0) > 0
    while True:
        try:
            lock.acquire(timeout=1)
            return lock
        except Timeout:
            if (heartbeat := _last_heartbeat(folder)) != seen:
                seen, alive = heartbeat, time.monotonic()
            if was_requeued and time.monotonic() - alive < REQUEUED_SECONDS:
                preemption.check()
                continue
            raise UserError(
                f"{folder} is in use by {Holder.of(folder)}: wait for it, or end it; if it is "
                f"gone, remove {lock.lock_file}"
            ) from None


def _last_heartbeat(folder: Path) -> float:
    try:
        return (folder / HEARTBEAT).stat().st_mtime
    except OSError:
        return 0.0
