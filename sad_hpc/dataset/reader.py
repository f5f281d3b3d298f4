"""Reading of a split's columns through its manifest, with a check of every byte."""

import io
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

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


def read_columns(
    folder: Path,
    manifest: Manifest,
    names: Sequence[str],
    rows: int | None = None,
    columns: Mapping[str, Column] | None = None,
) -> Arrays:
    """Read HDF5 datasets of a split, with its shards concatenated.

    Args:
        folder: folder of the split.
        manifest: its manifest.
        names: names of datasets, such as `transitions/states`.
        rows: number of tasks to read; None: all.
        columns: columns of `layout` to check against; None: no check.

    Returns:
        arrays by name, with the dtypes of the files.

    Raises:
        DatasetError: a shard is missing, truncated, altered or foreign, or does not follow
            `columns`.
    """
    total = sum(entry.rows for entry in _entries(manifest))
    total = total if rows is None else min(rows, total)
    # Filled shard by shard, because images are too large to be held twice.
    whole: Arrays = {}
    found = 0
    for entry in _entries(manifest):
        if found >= total:
            break
        taken = slice(found, found + min(entry.rows, total - found))
        for name, part in read_shard(folder, manifest, entry, names, columns).items():
            if name not in whole:
                whole[name] = _empty(folder, manifest, (total, *part.shape[1:]), part.dtype)
            if part.shape[1:] != whole[name].shape[1:]:
                raise DatasetError(
                    f"{folder / entry.name}: {name} has another shape than in earlier shards; "
                    f"{REMEDY}"
                )
            whole[name][taken] = part[: taken.stop - taken.start]
        found = taken.stop
    return whole


def read_last(
    folder: Path,
    manifest: Manifest,
    name: str,
    rows: int,
    columns: Mapping[str, Column] | None = None,
) -> NDArray[Any]:
    """Read the last rows of one HDF5 dataset, from as few shards as possible; see `read_columns`.

    A split with fewer tasks gives all of them.
    """
    parts: list[NDArray[Any]] = []
    for entry in reversed(list(_entries(manifest))):
        parts.insert(0, read_shard(folder, manifest, entry, [name], columns)[name])
        if sum(map(len, parts)) >= rows:
            break
    return np.concatenate(parts)[-rows:]


def _empty(
    folder: Path, manifest: Manifest, shape: tuple[int, ...], dtype: np.dtype[Any]
) -> NDArray[Any]:
    """Allocate an array, after a check that the split's files can have so much content.

    Raises:
        DatasetError: the files are too small for the manifest's tasks.
    """
    needed = math.prod(shape) * dtype.itemsize
    stored = sum(file_size(folder / e.name) or 0 for e in _entries(manifest))
    if needed > largest_content(stored, len(shape)):
        raise DatasetError(f"{folder} lacks some of its manifest's {shape[0]:,} tasks; {REMEDY}")
    return np.empty(shape, dtype)


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


def checked_bytes(path: Path, entry: ShardEntry) -> bytes:
    """Read a shard's bytes, and check them against its manifest entry.

    Raises:
        DatasetError: the file is missing, truncated or altered.
    """
    try:
        size = path.stat().st_size
        if size != entry.bytes:
            raise DatasetError(
                f"{path} has {size:,} bytes instead of {entry.bytes:,} (truncated?); {REMEDY}"
            )
        content = read_whole(path)
    except FileNotFoundError as error:
        raise DatasetError(f"{path} is missing; {REMEDY}") from error
    except OSError as error:
        raise DatasetError(f"cannot read {path}: {error.strerror}") from error
    if checksum(content) != entry.checksum:
        raise DatasetError(f"{path} is damaged: its checksum differs from the manifest; {REMEDY}")
    return content


def _entries(manifest: Manifest) -> Iterator[ShardEntry]:
    for block in sorted(manifest.shards):
        yield manifest.shards[block]
