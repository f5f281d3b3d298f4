"""A lock that admits one writer to a folder and identifies its holder to later processes.

The kernel releases the lock when its holder dies.  On a file system without locks, a file serves as
the lock.  The file of a dead process is taken over on the same node if the file system can exchange
two names; otherwise the user removes it.
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
from sad_hpc.storage.files import has_locks, write_error
from sad_hpc.storage.json_files import read_json, typed, write_json
from sad_hpc.storage.ownership import check_ownership

LOCK, SOFT_LOCK = ".lock", ".in-use"
HOLDER, HEARTBEAT = ".holder.json", "progress.json"

REQUEUED_SECONDS = 120.0
"""Longest wait of a requeued job for the next heartbeat of its earlier start."""


@dataclass(frozen=True)
class Holder:
    """The process that holds a folder's lock."""

    host: str
    pid: int
    job: str
    """Slurm's job id, or empty."""
    since: str
    """Local time at which it took the lock."""

    @classmethod
    def here(cls) -> "Holder":
        """Return a record of this process."""
        job = os.environ.get("SLURM_JOB_ID", "")
        since = time.strftime("%Y-%m-%d %H:%M:%S")
        return cls(socket.gethostname(), os.getpid(), job, since)

    @classmethod
    def of(cls, folder: Path) -> str:
        """Describe the holder of a folder; "another process" if it has not recorded itself yet."""
        holder = typed(cls, read_json(folder / HOLDER))
        if holder is None:
            return "another process"
        job = f" (job {holder.job})" if holder.job else ""
        return f"process {holder.pid} on {holder.host}{job}, since {holder.since}"


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Hold the lock of `folder` within this block; create the folder if it is missing.

    Raises:
        UserError: another process holds the lock, another user could change the folder, or it
            cannot be written.
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


def is_held(folder: Path) -> bool:
    """Return whether another process holds the lock of `folder`.

    Raises:
        UserError: the lock's file cannot be written.
    """
    try:
        _acquired(folder).release()
    except OSError as error:
        raise write_error(folder / LOCK, error) from error
    except UserError:
        return True
    return False


def _acquired(folder: Path) -> BaseFileLock:
    """Acquire and return the folder's lock.

    After a node failure Slurm restarts a job, while processes of its first start may still run.
    The second start waits as long as these send heartbeats.

    Raises:
        UserError: another process holds the lock; for a requeued job, without heartbeats.
        Preempted: a signal arrived while it waited.
    """
    lock: BaseFileLock = (
        FileLock(folder / LOCK) if has_locks(folder) else SoftFileLock(folder / SOFT_LOCK)
    )
    # The clocks of nodes and file servers differ, so only a change of the heartbeat counts.
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
                f"{folder} is in use by {Holder.of(folder)}: wait for it or end it. If it no "
                f"longer exists, remove {lock.lock_file}"
            ) from None


def _last_heartbeat(folder: Path) -> float:
    try:
        return (folder / HEARTBEAT).stat().st_mtime
    except OSError:
        return 0.0
