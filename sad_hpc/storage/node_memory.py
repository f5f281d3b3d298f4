"""Arrays that the processes of one user on one node hold once between them.

The first process makes the arrays in anonymous files (`memfd_create`) and records their
descriptors; others map these files through /proc.  The kernel frees an array with the last process
that maps it, so that nothing remains on the node after a kill.  If the first process has ended, the
next one makes the arrays again.
"""

import mmap
import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from filelock import FileLock
from numpy.typing import NDArray

from sad_hpc.errors import UserError
from sad_hpc.storage.json_files import read_json, typed, write_json
from sad_hpc.storage.ownership import is_private

SAME_START_SECONDS = 2.0
"""Largest difference between two readings of when a process started, since clocks are adjusted."""

Arrays = dict[str, NDArray[Any]]
Allocate = Callable[[str, tuple[int, ...], "np.dtype[Any]"], NDArray[Any]]
"""A function of name, shape and dtype that returns an array to fill."""


@dataclass(frozen=True)
class _Record:
    """The process that made the arrays of a key, and their files."""

    pid: int
    started: float
    """Start of the process, in seconds since the epoch: a number can be used again."""
    arrays: dict[str, tuple[int, list[int], str]]
    """Descriptor, shape and dtype by name."""


_made: dict[Path, list[int]] = {}
"""Descriptors of the arrays that this process has made, by the path of their record."""


def shared_arrays(key: str, make: Callable[[Allocate], Arrays]) -> Arrays:
    """Return the arrays of a key, which are made once on this node.

    Do not write to the arrays: other processes see what their maker writes.  A process keeps one
    key for others, the last that it has asked for.

    Args:
        key: name of the content; valid as a file name.
        make: function that makes the arrays, with memory from the function that it is given.

    Raises:
        UserError: another user could change the folder of the records.
    """
    if not hasattr(os, "memfd_create"):  # not Linux
        return make(lambda name, shape, dtype: np.empty(shape, dtype))
    path = _folder() / f"{key}.json"
    for other in _made.keys() - {path}:
        _give_up(other)
    with _lock(path):
        found = typed(_Record, read_json(path))
        if found is not None and (arrays := _mapped(found)) is not None:
            return arrays
        descriptors: dict[str, int] = {}

        def allocate(name: str, shape: tuple[int, ...], dtype: "np.dtype[Any]") -> NDArray[Any]:
            descriptors[name] = os.memfd_create(name.replace("/", "-"))
            os.ftruncate(descriptors[name], int(np.prod(shape)) * dtype.itemsize)
            return _array(descriptors[name], shape, dtype, mmap.MAP_SHARED)

        arrays = make(allocate)
        places = {
            name: (number, list(arrays[name].shape), arrays[name].dtype.str)
            for name, number in descriptors.items()
        }
        own = psutil.Process()
        write_json(path, vars(_Record(own.pid, own.create_time(), places)))
        _made[path] = list(descriptors.values())
        return arrays


def _give_up(path: Path) -> None:
    """Let the kernel free arrays that this process has made, once no process maps them."""
    with _lock(path):  # a reader of the record would map a reused descriptor
        path.unlink(missing_ok=True)
        for descriptor in _made.pop(path):
            os.close(descriptor)


def _lock(path: Path) -> FileLock:
    return FileLock(path.with_suffix(".lock"))


def _mapped(record: _Record) -> Arrays | None:
    """Map the arrays of another process; None if it has ended."""
    try:
        started = psutil.Process(record.pid).create_time()
        if abs(started - record.started) > SAME_START_SECONDS:
            return None
        arrays = {}
        for name, (number, shape, dtype) in record.arrays.items():
            descriptor = os.open(f"/proc/{record.pid}/fd/{number}", os.O_RDONLY)
            try:
                arrays[name] = _array(descriptor, shape, np.dtype(dtype), mmap.MAP_PRIVATE)
            finally:
                os.close(descriptor)
        return arrays
    except (psutil.Error, OSError, ValueError, TypeError):
        return None


def _array(descriptor: int, shape: Any, dtype: "np.dtype[Any]", flags: int) -> NDArray[Any]:
    size = int(np.prod(shape)) * dtype.itemsize
    if size == 0:
        return np.empty(shape, dtype)
    content = mmap.mmap(descriptor, size, flags=flags, prot=mmap.PROT_READ | mmap.PROT_WRITE)
    return np.frombuffer(content, dtype).reshape(shape)


def _folder() -> Path:
    """Return this user's folder of records, which others cannot change.

    Raises:
        UserError: another user has made it.
    """
    folder = Path(tempfile.gettempdir()) / f"sad_hpc-node-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    if not is_private(folder):
        raise UserError(f"{folder} belongs to another user, or others can write to it: remove it")
    return folder
