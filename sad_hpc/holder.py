"""One writer a folder: whoever works in it holds its lock, and tells those who come second.

The kernel releases the lock when its holder dies, however it dies, so that nobody has to clean up.
Where a file system knows no locks, `filelock` keeps a file instead.
"""

import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from sad_hpc.errors import SadError
from sad_hpc.files import read_json, write_error, write_json

LOCK, HOLDER = ".lock", ".holder.json"

REQUEUED_SECONDS = 120.0
"""How long a job that was queued again lets its earlier start come to its end."""


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
        try:
            holder = cls(**(read_json(folder / HOLDER) or {}))
        except TypeError:
            return "another process"
        job = f" (job {holder.job})" if holder.job else ""
        return f"process {holder.pid} on {holder.host}{job}, since {holder.since}"


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Within this block nobody else works in `folder`, which exists.

    Raises:
        SadError: somebody does; or the folder cannot be written.
    """
    # Of a job that lost its node, processes may live on for a while.
    patience = REQUEUED_SECONDS if int(os.environ.get("SLURM_RESTART_COUNT", 0)) else 0
    lock = FileLock(folder / LOCK, timeout=patience)
    try:
        lock.acquire()
    except Timeout:
        raise SadError(
            f"{folder} is in use by {Holder.of(folder)}: wait for it, or end it; if it is gone, "
            f"remove {folder / LOCK}"
        ) from None
    except OSError as error:
        raise write_error(folder / LOCK, error) from error
    try:
        write_json(folder / HOLDER, asdict(Holder.here()))
        yield
    finally:
        with suppress(OSError):
            (folder / HOLDER).unlink(missing_ok=True)
        lock.release()
