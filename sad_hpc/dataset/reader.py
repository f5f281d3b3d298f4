"""Reading of a split's columns through its manifest, with a check of every byte."""

import io
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numpy as np
from numpy.typing import NDArray

from sad_hpc.dataset.layout import Column, faults
from sad_hpc.dataset.schema import FORMAT_VERSION, REMEDY, Manifest, ShardEntry
from sad_hpc.dataset.writer import dataset_names
from sad_hpc.errors import DatasetError
from sad_hpc.experiment.config import differences
from sad_hpc.storage.files import checksum, file_size, read_whole
from sad_hpc.storage.hdf5 import largest_content, read_numbers
from sad_hpc.storage.node_memory import Allocate
from sad_hpc.tasks.base import Arrays


def load_complete(
    folder: Path,
    signature: str,
    config: dict[str, Any],
    fingerprint: Sequence[float] | None = None,
) -> Manifest:
    """Load the manifest of a complete split, and check that it has this config.

    Args:
        folder: folder of the split.
        signature: signature of the dataset.
        config: config of the dataset.
        fingerprint: fingerprint of this process's environment; None: no check.

    Raises:
        DatasetError: the split is missing, incomplete, or made by another config or environment.
    """
    manifest = Manifest.load(folder)
    if manifest.signature != signature:
        changed = "; ".join(differences(manifest.config, config)) or "made by another version"
        raise DatasetError(
            f"{folder} has signature {manifest.signature}, but this config needs {signature} "
            f"({changed}); {REMEDY}"
        )
    if not manifest.complete:
        raise DatasetError(
            f"{folder} has {len(manifest.shards)} of {manifest.n_blocks} shards; {REMEDY}"
        )
    manifest.check_environment(folder, fingerprint)
    return manifest


class Part(NamedTuple):
    """Successive rows of a shard."""

    entry: ShardEntry
    start: int
    stop: int


def first_parts(manifest: Manifest, rows: int | None = None) -> list[Part]:
    """Return the parts of a split's first rows, at most all of them; None: all."""
    parts: list[Part] = []
    left = sum(entry.rows for entry in manifest.in_order)
    left = left if rows is None else min(rows, left)
    for entry in manifest.in_order:
        if left <= 0:
            break
        parts.append(Part(entry, 0, min(entry.rows, left)))
        left -= entry.rows
    return parts


def last_parts(manifest: Manifest, rows: int) -> list[Part]:
    """Return the parts of a split's last rows, at most all of them."""
    parts: list[Part] = []
    for entry in reversed(manifest.in_order):
        if rows <= 0:
            break
        parts.insert(0, Part(entry, max(0, entry.rows - rows), entry.rows))
        rows -= entry.rows
    return parts


def read_columns(
    folder: Path,
    manifest: Manifest,
    names: Sequence[str],
    rows: int | None = None,
    columns: Mapping[str, Column] | None = None,
) -> Arrays:
    """Read the first rows of a split's HDF5 datasets; None: all rows.  See `read_parts`."""
    return read_parts(folder, manifest, names, first_parts(manifest, rows), columns)


def read_parts(
    folder: Path,
    manifest: Manifest,
    names: Sequence[str],
    parts: Sequence[Part],
    columns: Mapping[str, Column] | None = None,
    allocate: Allocate | None = None,
) -> Arrays:
    """Read parts of a split's HDF5 datasets, concatenated.

    Args:
        folder: folder of the split.
        manifest: its manifest.
        names: names of datasets, such as `transitions/states`.
        parts: the rows to read; a shard is read once for each of its parts.
        columns: columns of `layout` to check against; None: no check.
        allocate: function that returns the arrays to fill; None: ordinary memory.

    Returns:
        arrays by name, with the dtypes of the files.

    Raises:
        DatasetError: a shard is missing, truncated, altered or foreign, or does not follow
            `columns`.
    """
    total = sum(part.stop - part.start for part in parts)
    # Filled shard by shard, because images are too large to be held twice.
    whole: Arrays = {}
    found = 0
    for part in parts:
        place = slice(found, found + part.stop - part.start)
        for name, rows in read_shard(folder, manifest, part.entry, names, columns).items():
            if name not in whole:
                shape = (total, *rows.shape[1:])
                _check_fits(folder, parts, shape, rows.dtype)
                whole[name] = (allocate or _empty)(name, shape, rows.dtype)
            if rows.shape[1:] != whole[name].shape[1:]:
                raise DatasetError(
                    f"{folder / part.entry.name}: {name} has another shape than in earlier "
                    f"shards; {REMEDY}"
                )
            whole[name][place] = rows[part.start : part.stop]
        found = place.stop
    return whole


def _empty(name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    return np.empty(shape, dtype)


def _check_fits(
    folder: Path, parts: Sequence[Part], shape: tuple[int, ...], dtype: np.dtype[Any]
) -> None:
    """Check that the parts' files can have as much content as an array.

    Raises:
        DatasetError: the files are too small for the manifest's tasks.
    """
    needed = math.prod(shape) * dtype.itemsize
    stored = sum(file_size(folder / part.entry.name) or 0 for part in parts)
    if needed > largest_content(stored, len(shape)):
        raise DatasetError(f"{folder} lacks some of its manifest's {shape[0]:,} tasks; {REMEDY}")


def read_shard(
    folder: Path,
    manifest: Manifest,
    entry: ShardEntry,
    names: Iterable[str] | None = None,
    columns: Mapping[str, Column] | None = None,
) -> Arrays:
    """Read HDF5 datasets of one shard after a check of its checksum.

    HDF5 parses only bytes that were checked.

    Args:
        folder: folder of the split.
        manifest: its manifest.
        entry: the shard's entry in the manifest.
        names: names of datasets; None: all.
        columns: columns of `layout` to check against; None: no check.

    Raises:
        DatasetError: the shard is missing, truncated, altered or foreign, or does not follow
            `columns`.
    """
    path = folder / entry.name
    with _opened(path, checked_bytes(path, entry)) as file:
        if file.attrs.get("format_version") != FORMAT_VERSION:
            raise DatasetError(f"{path} is of another format version; {REMEDY}")
        if file.attrs.get("signature") != manifest.signature:
            raise DatasetError(f"{path} belongs to another dataset; {REMEDY}")
        arrays = {}
        try:
            for name in names if names is not None else dataset_names(file):
                arrays[name] = read_numbers(file, name)
        except KeyError:
            raise DatasetError(f"{path} has no dataset {name}; {REMEDY}") from None
        except (OSError, RuntimeError, TypeError, ValueError) as error:
            raise DatasetError(f"{path}: {' '.join(str(error).split())}; {REMEDY}") from None
    wrong = [name for name, array in arrays.items() if array.shape[:1] != (entry.rows,)]
    if wrong:
        raise DatasetError(f"{path}: {wrong[0]} does not have {entry.rows:,} rows; {REMEDY}")
    if wrong := faults(arrays, entry.rows, columns or {}):
        raise DatasetError(f"{path}: {wrong[0]}; {REMEDY}")
    return arrays


def _opened(path: Path, content: bytes) -> h5py.File:
    """Open bytes as an HDF5 file; errors have `path`."""
    try:
        return h5py.File(io.BytesIO(content), "r")
    except OSError as error:
        raise DatasetError(f"{path} is not an HDF5 file ({error}); {REMEDY}") from None


def check_size(path: Path, entry: ShardEntry) -> None:
    """Check that a shard has the size in its manifest entry.

    Raises:
        DatasetError: the file is missing or has another size.
    """
    size = file_size(path)
    if size is None:
        raise DatasetError(f"{path} is missing; {REMEDY}")
    if size != entry.bytes:
        raise DatasetError(
            f"{path} has {size:,} bytes instead of {entry.bytes:,} (truncated?); {REMEDY}"
        )


def checked_bytes(path: Path, entry: ShardEntry) -> bytes:
    """Read a shard's bytes, and check them against its manifest entry.

    Raises:
        DatasetError: the file is missing, truncated or altered.
    """
    try:
        check_size(path, entry)
        content = read_whole(path)
    except FileNotFoundError as error:
        raise DatasetError(f"{path} is missing; {REMEDY}") from error
    except OSError as error:
        raise DatasetError(f"cannot read {path}: {error.strerror}") from error
    if checksum(content) != entry.checksum:
        raise DatasetError(f"{path} is damaged: its checksum differs from the manifest; {REMEDY}")
    return content
