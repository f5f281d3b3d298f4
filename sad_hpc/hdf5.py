"""HDF5 files made in memory and written in one step.

HDF5 never writes to disk itself here: on a full disk its library can crash the interpreter when the
file is closed, and a killed writer leaves a file that nobody can read.
"""

from collections.abc import Callable
from pathlib import Path

import h5py

from sad_hpc.files import atomic_path

# Checksummed metadata as well as checksummed chunks.
LIBRARY_VERSION = ("v110", "v110")


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
        SadError: the disk is full, the folder cannot be written, or the file reads back
            differently; the old file stays.
    """
    with atomic_path(path) as temporary:
        temporary.write_bytes(content)
        if temporary.read_bytes() != content:
            raise OSError("reads back differently; check the file system")


def write_file(path: Path, fill: Callable[[h5py.File], None]) -> None:
    """Writes an HDF5 file that `fill` fills, in one step; see `write_bytes`."""
    write_bytes(path, file_image(fill))
