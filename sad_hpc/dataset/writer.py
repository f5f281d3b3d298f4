"""Writing of a shard for each block, and of the virtual dataset."""

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from sad_hpc.dataset.schema import (
    VIRTUAL,
    Manifest,
    ShardEntry,
    chunk_shape,
    compression,
    root_attributes,
    shard_name,
)
from sad_hpc.distill.block import Block
from sad_hpc.errors import DatasetError
from sad_hpc.storage.files import checksum
from sad_hpc.storage.hdf5 import file_image, write_bytes, write_file


def shard_content(block: Block, signature: str, config: dict[str, Any], family: str) -> bytes:
    """Return the bytes of a block's shard, after a check that they read back as the block.

    Raises:
        DatasetError: they read back differently.
    """
    return arrays_content(block.arrays, root_attributes(signature, config, family, block.steps))


def arrays_content(arrays: Mapping[str, NDArray[Any]], attributes: Mapping[str, Any]) -> bytes:
    """Return the bytes of a file of arrays with the task as first axis; see `shard_content`."""

    def fill(file: h5py.File) -> None:
        for name, array in arrays.items():
            filters = compression(array)
            chunks = chunk_shape(array)
            file.create_dataset(name, data=array, chunks=chunks, fletcher32=True, **filters)
        file.attrs.update(attributes)

    content = file_image(fill)
    with h5py.File(io.BytesIO(content), "r") as file:
        for name, array in arrays.items():
            if not np.array_equal(file[name][...], array):
                first = arrays["tasks/index"][0]
                raise DatasetError(
                    f"{name} of the block of task {first} reads back differently: check this node"
                )
    return content


def write_shard(folder: Path, number: int, block: Block, content: bytes) -> ShardEntry:
    """Write a block's content under a temporary name, read it back, and rename it.

    Raises:
        UserError: the disk is full, the folder cannot be written, or the content reads back
            differently.
    """
    write_bytes(folder / shard_name(number), content)
    return ShardEntry(
        block=number,
        rows=len(block.arrays["tasks/index"]),
        bytes=len(content),
        checksum=checksum(content),
        steps=block.steps,
    )


def write_virtual_dataset(folder: Path, manifest: Manifest, family: str) -> None:
    """Write `dataset.h5`, which shows all shards as one; sources are relative paths."""
    names = sorted(manifest.shards)
    with h5py.File(folder / shard_name(names[0]), "r") as first:
        layouts = {
            name: (first[name].shape[1:], first[name].dtype) for name in dataset_names(first)
        }

    def fill(file: h5py.File) -> None:
        for name, (row_shape, dtype) in layouts.items():
            layout = h5py.VirtualLayout((manifest.n_tasks, *row_shape), dtype)
            start = 0
            for block in names:
                rows = manifest.shards[block].rows
                source = h5py.VirtualSource(shard_name(block), name, (rows, *row_shape), dtype)
                layout[start : start + rows] = source
                start += rows
            file.create_virtual_dataset(name, layout)
        file.attrs.update(
            root_attributes(manifest.signature, manifest.config, family, manifest.steps)
        )

    write_file(folder / VIRTUAL, fill)


def dataset_names(file: h5py.File) -> list[str]:
    """Return the full names of all datasets in a file."""
    names: list[str] = []

    def visit(name: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset):
            names.append(name)

    file.visititems(visit)
    return names
