"""HDF5 files that are built in memory and written atomically.

HDF5 itself never writes to disk here.  On a full disk its library can crash the interpreter when it
closes a file, and a killed writer leaves an unreadable file.
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

# This version of the format also has checksums on metadata.
LIBRARY_VERSION = ("v110", "v110")

EXPANSION = 64
"""Largest ratio of a dataset's size in memory to its file's size; ours are hardly compressed."""
IMAGE_EXPANSION = 256
"""Largest such ratio of images (n, k, H, W, C), which are compressed; empty ones have 225."""
SMALL_BYTES = 2**26
"""Datasets below this size are always accepted."""


def file_image(fill: Callable[[h5py.File], None]) -> bytes:
    """Return the bytes of an HDF5 file that `fill` fills; equal content gives equal bytes."""
    with h5py.File(
        "image", "w", driver="core", backing_store=False, libver=LIBRARY_VERSION
    ) as file:
        fill(file)
        file.flush()
        return file.id.get_file_image()


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file atomically: temporary name, read back, fsync, rename.

    Raises:
        UserError: the disk is full, the folder cannot be written, or the file reads back
            differently; the old file stays.
    """
    with atomic_path(path, len(content)) as temporary:
        temporary.write_bytes(content)
        if temporary.read_bytes() != content:
            raise OSError("reads back differently; check the file system")


def write_file(path: Path, fill: Callable[[h5py.File], None]) -> None:
    """Write an HDF5 file that `fill` fills; see `write_bytes`."""
    write_bytes(path, file_image(fill))


def member(group: h5py.Group, name: str) -> Any:
    """Return the group or dataset at a path of an untrusted file, without following links.

    Raises:
        KeyError: the path does not exist.
        ValueError: a part of it is a link, which could lead into another file.
    """
    found = group
    for part in name.split("/"):
        link = found.get(part, getlink=True) if isinstance(found, h5py.Group) else None
        if link is None:
            raise KeyError(f"no {name}")
        if not isinstance(link, h5py.HardLink):  # before anything is opened
            raise ValueError(f"{name} lies in another file, or is a link")
        found = found[part]
    return found


def largest_content(file_bytes: int, rank: int) -> int:
    """Return the largest accepted size of a dataset in memory, in bytes.

    Args:
        file_bytes: size of its file.
        rank: number of its axes.
    """
    return max(SMALL_BYTES, (IMAGE_EXPANSION if rank == 5 else EXPANSION) * file_bytes)


def read_numbers(group: h5py.Group, name: str) -> NDArray[Any]:
    """Return a numeric dataset of an untrusted file.

    Raises:
        KeyError: the dataset does not exist.
        ValueError: it is not numeric, lies in another file, or is too large for its file.
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
    """Check an untrusted file before another library reads it.

    Raises:
        ValueError: a member is a link, lies in another file, or is too large for its file.
    """
    groups, seen = [file["/"]], set()
    while groups:
        group = groups.pop()
        for name in group:
            found = member(group, name)
            if isinstance(found, h5py.Dataset):
                _check_storage(found, found.name)
            elif isinstance(found, h5py.Group) and (place := _place(found)) not in seen:
                seen.add(place)  # a group may contain itself
                groups.append(found)


def _place(group: h5py.Group) -> int:
    return h5py.h5o.get_info(group.id).addr


def _check_storage(dataset: h5py.Dataset, name: str) -> None:
    """Raise ValueError if a dataset lies in another file, or is too large for its own."""
    if dataset.is_virtual or dataset.external:
        raise ValueError(f"{name} lies in another file")
    # A chunk is decompressed as a whole, even if the dataset is smaller.
    needed = max(dataset.nbytes, math.prod(dataset.chunks or (0,)) * dataset.dtype.itemsize)
    if needed > largest_content(dataset.file.id.get_filesize(), dataset.ndim):
        raise ValueError(f"{name} would take {needed:,} bytes, far more than its file has")


def read_attribute(group: h5py.Group, name: str, kind: type[T]) -> T:
    """Return a scalar attribute of an untrusted file.

    Raises:
        KeyError: the attribute does not exist.
        ValueError: it has another type, such as an array.
    """
    value = group.attrs[name]
    if isinstance(value, np.generic):
        value = value.item()
    if type(value) is not kind:  # not isinstance: True is not accepted as a number
        raise ValueError(f"attribute {name} is not of type {kind.__name__}")
    return value
