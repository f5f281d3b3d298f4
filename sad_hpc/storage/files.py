"""Files: atomic writes, whole reads on network disks, checksums, and errors with their fix."""

import errno
import fcntl
import hashlib
import os
import shutil
import socket
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from sad_hpc.errors import UserError

T = TypeVar("T")

LATE_SECONDS = 60.0
"""Longest delay after which a network file system shows a file of another node."""

STALE_READS = 10
"""Number of retries when a file is replaced while it is read."""

_IN_THE_WAY = "remove the file or folder of this name"
_FORBIDDEN = "make its folder writable for you (chmod u+w)"
REMEDIES = {
    errno.ENOSPC: "free space",
    errno.EDQUOT: "free space",
    errno.EFBIG: "raise the limit on the size of files (ulimit -f)",
    errno.EEXIST: _IN_THE_WAY,
    errno.EISDIR: _IN_THE_WAY,
    errno.ENOTDIR: "remove the file of a folder's name",
    errno.EACCES: _FORBIDDEN,
    errno.EPERM: _FORBIDDEN,
    errno.EROFS: "mount its file system for writing",
    errno.EIO: "check the disk, which reports an error",
    errno.ENAMETOOLONG: "shorten the name",
}
"""Fixes for a failed write, by error number."""


def keep_others_from_writing() -> None:
    """Set the umask so that this process's new files are not writable by group or world.

    Jobs unpickle files of a run's folder, so a user who can write there can run code as its owner.
    """
    os.umask(os.umask(0o022) | 0o022)


@contextmanager
def atomic_path(path: Path, needed: int | None = None) -> Iterator[Path]:
    """Yield a temporary path beside `path`; fsync it and rename it to `path` if the block succeeds.

    Args:
        path: the final path.
        needed: size of the file in bytes, if known; for the error on a full disk.

    Raises:
        UserError: the disk is full or the folder cannot be written; the temporary file is removed.
    """
    temporary = path.parent / f".{path.name}.{socket.gethostname()}.{os.getpid()}.tmp"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield temporary
        with temporary.open("rb") as handle:
            os.fsync(handle.fileno())
        temporary.replace(path)
    except OSError as error:
        raise write_error(path, error, needed) from error
    finally:
        with suppress(OSError):  # report the first error, not this one
            temporary.unlink(missing_ok=True)


def has_locks(folder: Path) -> bool:
    """Return whether files in a folder can be locked (flock); some network file systems refuse.

    Raises:
        OSError: the folder cannot be written.
    """
    with tempfile.TemporaryFile(dir=folder) as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP):
                return False
            raise
    return True


def checksum(content: bytes) -> str:
    """Return the BLAKE2b-256 checksum of a file's bytes, in hex."""
    return hashlib.blake2b(content, digest_size=32).hexdigest()


def write_error(path: Path, error: OSError, needed: int | None = None) -> UserError:
    """Return a one-line error for a failed write, with the path and the fix.

    Args:
        path: the file that was to be written.
        error: the system's error.
        needed: its size in bytes, if known.
    """
    reason = error.strerror or " ".join(str(error).split())
    if error.errno in (errno.ENOSPC, errno.EDQUOT) and needed:
        reason += f" ({needed:,} bytes are needed{_free_beside(path)})"
    remedies = REMEDIES.get(error.errno or 0), "choose other folders (--runs, --results)"
    return UserError(f"cannot write {path}: {reason}; {', or '.join(filter(None, remedies))}")


def _free_beside(path: Path) -> str:
    try:
        return f", {shutil.disk_usage(path.parent).free:,} are free there"
    except OSError:
        return ""


def lies_in(path: Path, folder: Path) -> bool:
    """Return whether a path is in a folder after all links are followed."""
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder))


def file_size(path: Path) -> int | None:
    """Return the size of a file in bytes; None if it is missing."""
    try:
        return path.stat().st_size
    except OSError:
        return None


def wait_until_seen(answer: Callable[[], T]) -> T:
    """Call `answer` until it returns a true value, at most for LATE_SECONDS; return the last value.

    Use it for a file that is known to be finished but that a network file system may not show yet.
    """
    deadline = time.monotonic() + LATE_SECONDS
    while not (seen := answer()) and time.monotonic() < deadline:
        time.sleep(0.2)
    return seen


def synced_bytes(path: Path) -> bytes:
    """Return a file's content after an fsync."""
    with path.open("rb") as handle:
        os.fsync(handle.fileno())
        return handle.read()


def sync_names(folder: Path) -> None:
    """Write the names of a folder's files to the disk.

    Raises:
        OSError: the disk fails.
    """
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno != errno.EINVAL:  # some file systems sync no folders
            raise
    finally:
        os.close(handle)


def read_whole(path: Path, largest: int | None = None) -> bytes:
    """Return the content of a file that other processes may replace while it is read.

    A network file system then reports a stale file (ESTALE), and the new file is read.

    Args:
        path: the file.
        largest: largest size in bytes; None for no limit.

    Raises:
        OSError: the file cannot be read, is too large, or is a folder, a pipe or a device.
    """
    for _ in range(STALE_READS):
        try:
            return _read_regular(path, largest)
        except OSError as error:
            if error.errno != errno.ESTALE:
                raise
    return _read_regular(path, largest)


def _read_regular(path: Path, largest: int | None) -> bytes:
    # O_NONBLOCK: opening a pipe would otherwise wait for its writer.
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        if largest is not None and status.st_size > largest:
            raise OSError(errno.EFBIG, f"larger than {largest:,} bytes", str(path))
        return file.read()
