"""HDF5 files made in memory and written in one step.

HDF5 never writes to disk itself here: on a full disk its library can crash the interpreter when the
file is closed, and a killed writer leaves a file that nobody can read.
"""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import h5py
import numpy as np
from numpy.typing import NDArray

from sad_hpc.storage.files import atomic_path

T = TypeVar("T")

# Checksummed metadata as well as checksummed chunks.
LIBRARY_VERSION = ("v110", "v110")

EXPANSION = 64
"""How many times its file's size a dataset may have in memory: ours compress to a third."""
SMALL_BYTES = 2**26
"""Below this nobody minds."""


def file_image(fill: Callable[[h5py.File], None]) -> bytes:
    """The bytes of an HDF5 file that `fill` has filled; the same content gives the same bytes."""
    with h5py.File(
        "image", "w", driver="core", backing_store=False, libver=LIBRARY_VERSION
    ) as file:
        fill(file)
        file.flush()
        return file.id.get_file_image()


def write_bytes(path: Path, content: bytes) -> None:
    """Writes a file in one step: temporary name, fsync, read back, rename.

    Raises:
        UserError: the disk is full, the folder cannot be written, or the file reads back
            differently; the old file stays.
    """
    with atomic_path(path, len(content)) as temporary:
        temporary.write_bytes(content)
        if temporary.read_bytes() != content:
            raise OSError("reads back differently; check the file system")


def write_file(path: Path, fill: Callable[[h5py.File], None]) -> None:
    """Writes an HDF5 file that `fill` fills, in one step; see `write_bytes`."""
    write_bytes(path, file_image(fill))


def member(group: h5py.Group, name: str) -> Any:
    """What a file that may be a stranger's has at a path, of which no part leads out of the file.

    Raises:
        KeyError: there is nothing of this name.
        ValueError: it is a link, which could lead into another file.
    """
    found = group
    for part in name.split("/"):
        link = found.get(part, getlink=True) if isinstance(found, h5py.Group) else None
        if link is None:
            raise KeyError(f"no {name}")
        if not isinstance(link, h5py.HardLink):  # refused before anything is opened
            raise ValueError(f"{name} lies in another file, or is a link")
        found = found[part]
    return found


def largest_content(file_bytes: int) -> int:
    """How many bytes a dataset may have in memory, of a file of so many."""
    return max(SMALL_BYTES, EXPANSION * file_bytes)


def read_numbers(group: h5py.Group, name: str) -> NDArray[Any]:
    """A dataset of a file that may be a stranger's.

    Raises:
        KeyError: there is none of this name.
        ValueError: it holds no numbers, lies in another file, or would fill the memory.
    """
    dataset = member(group, name)
    if (
        not isinstance(dataset, h5py.Dataset)
        or dataset.shape is None
        or dataset.dtype.kind not in "iuf"
    ):
        raise ValueError(f"{name} holds no numbers")
    _check_storage(dataset, name)
    array: NDArray[Any] = dataset[()]
    return array


def check_inside(file: h5py.File) -> None:
    """Checks a stranger's file before another library reads it.

    Raises:
        ValueError: something in it is a link, lies in another file, or would fill the memory.
    """
    groups, seen = [file["/"]], set()
    while groups:
        group = groups.pop()
        for name in group:
            found = member(group, name)
            if isinstance(found, h5py.Dataset):
                _check_storage(found, found.name)
            elif isinstance(found, h5py.Group) and (place := _place(found)) not in seen:
                seen.add(place)  # a group may hold itself
                groups.append(found)


def _place(group: h5py.Group) -> int:
    return h5py.h5o.get_info(group.id).addr


def _check_storage(dataset: h5py.Dataset, name: str) -> None:
    """Raises ValueError if a dataset lies in another file, or is too large for its own."""
    if dataset.is_virtual or dataset.external:
        raise ValueError(f"{name} lies in another file")
    # A chunk is decompressed as a whole, however little of it the dataset has.
    needed = max(dataset.nbytes, math.prod(dataset.chunks or (0,)) * dataset.dtype.itemsize)
    if needed > largest_content(dataset.file.id.get_filesize()):
        raise ValueError(f"{name} would take {needed:,} bytes, of a file much smaller")


def read_attribute(group: h5py.Group, name: str, kind: type[T]) -> T:
    """An attribute that is one value, of a file that may be a stranger's.

    Raises:
        KeyError: there is none of this name.
        ValueError: it is of another kind, such as an array.
    """
    value = group.attrs[name]
    if isinstance(value, np.generic):
        value = value.item()
    if type(value) is not kind:  # True is no number here
        raise ValueError(f"attribute {name} is no {kind.__name__}")
    return value
