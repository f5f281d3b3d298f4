"""Reading: columns of a split as compact arrays, through the manifest, every byte checked."""

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

Arrays = dict[str, NDArray[Any]]


def load_complete(
    folder: Path,
    signature: str,
    config: dict[str, Any],
    fingerprint: Sequence[float] | None = None,
) -> Manifest:
    """The manifest of a complete split that was made by this config.

    Args:
        folder: of the split.
        signature: of the dataset.
        config: that decides it.
        fingerprint: of this process's environment, where it is used beside the data.

    Raises:
        DatasetError: the split is missing, incomplete, or made by another config or environment.
    """
    manifest = Manifest.load(folder)
    if manifest.signature != signature:
        changed = "; ".join(differences(manifest.config, config)) or "made by another version"
        raise DatasetError(
            f"{folder} has signature {manifest.signature}, this config needs {signature} "
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
    """Whole datasets, shards joined in order.

    Args:
        folder: of the split.
        manifest: its manifest.
        names: datasets, such as `context/states`.
        rows: only the first so many tasks.
        columns: of `layout`, which the datasets must follow; None: no check.

    Returns:
        name -> array with the dtypes of the files.

    Raises:
        DatasetError: a shard is missing, truncated, altered or foreign, or does not follow
            `columns`.
    """
    total = sum(entry.rows for entry in _entries(manifest))
    total = total if rows is None else min(rows, total)
    # Filled as they come: images are too large to be held twice.
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
                    f"{folder / entry.name}: {name} has another shape than in the shards before; "
                    f"{REMEDY}"
                )
            whole[name][taken] = part[: taken.stop - taken.start]
        found = taken.stop
    return whole


def _empty(
    folder: Path, manifest: Manifest, shape: tuple[int, ...], dtype: np.dtype[Any]
) -> NDArray[Any]:
    """An array to be filled, if the split's files can have so much.

    Raises:
        DatasetError: they cannot.
    """
    needed = math.prod(shape) * dtype.itemsize
    if needed > largest_content(sum(file_size(folder / e.name) or 0 for e in _entries(manifest))):
        raise DatasetError(f"{folder} has not the {shape[0]:,} tasks of its manifest; {REMEDY}")
    return np.empty(shape, dtype)


def read_shard(
    folder: Path,
    manifest: Manifest,
    entry: ShardEntry,
    names: Iterable[str] | None = None,
    columns: Mapping[str, Column] | None = None,
) -> Arrays:
    """Datasets of one shard, after its checksum was found right.

    The file is parsed from the bytes that were checked, so nothing unlisted reaches HDF5.

    Args:
        folder: of the split.
        manifest: its manifest.
        entry: of the shard.
        names: datasets; None: all.
        columns: of `layout`, which the datasets must follow; None: no check.

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
        raise DatasetError(f"{path}: {wrong[0]} has not {entry.rows:,} rows; {REMEDY}")
    if wrong := faults(arrays, entry.rows, columns or {}):
        raise DatasetError(f"{path}: {wrong[0]}; {REMEDY}")
    return arrays


def _opened(path: Path, content: bytes) -> h5py.File:
    """An HDF5 file of bytes; `path` is named in errors."""
    try:
        return h5py.File(io.BytesIO(content), "r")
    except OSError as error:
        raise DatasetError(f"{path} is no HDF5 file ({error}); {REMEDY}") from None


def checked_bytes(path: Path, entry: ShardEntry) -> bytes:
    """A shard's bytes, equal to those that were written.

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
