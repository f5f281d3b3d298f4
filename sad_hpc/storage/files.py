"""Files that are whole or not there: atomic writes, checksums, and JSON with a seal."""

import errno
import fcntl
import hashlib
import json
import os
import shutil
import socket
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import Field, TypeAdapter, ValidationError

from sad_hpc.errors import UserError
from sad_hpc.storage import plain_json

T = TypeVar("T")

LATE_SECONDS = 60.0
"""How long a network file system may take to show what another process has finished."""

STALE_READS = 10
"""How often a file may be replaced while it is read."""

Moment = Annotated[float, Field(ge=0, le=1e12)]
"""Seconds since the epoch, in a file that may be damaged."""

_IN_THE_WAY = "remove what has this name"
_FORBIDDEN = "make its folder writable for you (chmod u+w)"
REMEDIES = {
    errno.ENOSPC: "free space",
    errno.EDQUOT: "free space",
    errno.EFBIG: "raise the limit on the size of files (ulimit -f)",
    errno.EEXIST: _IN_THE_WAY,
    errno.EISDIR: _IN_THE_WAY,
    errno.ENOTDIR: "remove the file that is in the place of a folder",
    errno.EACCES: _FORBIDDEN,
    errno.EPERM: _FORBIDDEN,
    errno.EROFS: "mount its file system for writing",
    errno.EIO: "check its disk, which has had an error",
    errno.ENAMETOOLONG: "shorten the name",
}
"""What mends a write that has failed, by the system's number of the error."""

_adapter: Any = cache(TypeAdapter)  # to make one takes a millisecond


def keep_others_from_writing() -> None:
    """From now on this process's files and folders are not writable by group or world.

    Jobs unpickle what lies in a run's folder: who may write there may run code as its owner.
    """
    os.umask(os.umask(0o022) | 0o022)


@contextmanager
def atomic_path(path: Path, needed: int | None = None) -> Iterator[Path]:
    """A temporary path beside `path`; fsynced and renamed to it if the block succeeds.

    Args:
        path: where the file shall be.
        needed: bytes that it will have, where they are known; for the error on a full disk.

    Raises:
        UserError: the disk is full or the folder cannot be written; nothing is left behind.
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
        with suppress(OSError):  # the error that matters is the one before
            temporary.unlink(missing_ok=True)


def has_locks(folder: Path) -> bool:
    """Whether files in a folder can be locked (flock), which some network file systems refuse.

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
    """BLAKE2b-256 of a file's bytes, in hex."""
    return hashlib.blake2b(content, digest_size=32).hexdigest()


def write_error(path: Path, error: OSError, needed: int | None = None) -> UserError:
    """An OSError of a write as one line with the path and what mends it.

    Args:
        path: what was to be written.
        error: why it was not.
        needed: bytes of it, where they are known.
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
    """Whether a path is in a folder once all links are followed."""
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder))


def file_size(path: Path) -> int | None:
    """Bytes of a file; None if there is none."""
    try:
        return path.stat().st_size
    except OSError:
        return None


def wait_until_seen(answer: Callable[[], T]) -> T:
    """The first true answer, or the last one: for whoever knows that a file has been finished,
    perhaps by another node."""
    deadline = time.monotonic() + LATE_SECONDS
    while not (seen := answer()) and time.monotonic() < deadline:
        time.sleep(0.2)
    return seen


def synced_bytes(path: Path) -> bytes:
    """A file's content, which is on the disk itself when this returns."""
    with path.open("rb") as handle:
        os.fsync(handle.fileno())
        return handle.read()


def write_json(path: Path, content: Any) -> None:
    """Writes JSON in one step: readers see the old file or the new one.

    JSON tells of other files, such as shards: the names of all in its folder are on the disk then.
    To sync the folder at every shard would take as long as to write the shards.
    """
    text = json.dumps(content, indent=2) + "\n"
    with atomic_path(path, len(text)) as temporary:
        temporary.write_text(text, encoding="utf-8")
    try:
        _sync_names(path.parent)
    except OSError as error:
        raise write_error(path, error) from error


def _sync_names(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno != errno.EINVAL:  # some file systems sync no folders
            raise
    finally:
        os.close(handle)


def read_whole(path: Path, largest: int | None = None) -> bytes:
    """Return the content of a file that other processes may replace meanwhile.

    A network file system gives up the old one then (ESTALE), and the new one is read.

    Args:
        path: of the file.
        largest: bytes that it may have; None: any number.

    Raises:
        OSError: it cannot be read, is larger, or is a folder, a pipe or a device.
    """
    for _ in range(STALE_READS):
        try:
            return _read_regular(path, largest)
        except OSError as error:
            if error.errno != errno.ESTALE:
                raise
    return _read_regular(path, largest)


def _read_regular(path: Path, largest: int | None) -> bytes:
    # O_NONBLOCK: to open a pipe would wait for its writer.
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        if largest is not None and status.st_size > largest:
            raise OSError(errno.EFBIG, f"larger than {largest:,} bytes", str(path))
        return file.read()


def parse_json(path: Path) -> Any:
    """Return the content of a JSON file; see `plain_json.parse`.

    Raises:
        OSError: the file cannot be read.
        ValueError: its content is not plain JSON.
    """
    return plain_json.parse(read_whole(path, plain_json.MAX_BYTES))


def read_json(path: Path) -> Any:
    """Return the content of a JSON file, or None if it is missing or not plain JSON."""
    try:
        return parse_json(path)
    except (OSError, ValueError):
        return None


def typed(kind: type[T], content: Any) -> T | None:
    """JSON values as `kind`, a dataclass or another type; None if they are of other types.

    Keys that `kind` does not know are left out: a later version may have written them.
    """
    try:
        return _adapter(kind).validate_python(content)
    except (ValidationError, OverflowError):
        return None


def sealed(content: dict[str, Any]) -> dict[str, Any]:
    """JSON values with a checksum of their own under `seal`."""
    text = json.dumps(content, sort_keys=True).encode()
    return {**content, "seal": hashlib.blake2b(text, digest_size=16).hexdigest()}


def unsealed(content: dict[str, Any]) -> dict[str, Any]:
    """What was sealed.

    Raises:
        ValueError: it was altered since.
    """
    bare = {key: value for key, value in content.items() if key != "seal"}
    if sealed(bare) != content:
        raise ValueError("altered since it was written")
    return bare
