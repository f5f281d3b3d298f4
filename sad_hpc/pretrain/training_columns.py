"""The columns of a method's training examples on disk."""

import functools
import hashlib
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch.distributed as dist
from numpy.typing import NDArray

from sad_hpc.dataset.layout import layout
from sad_hpc.dataset.reader import (
    Arrays,
    Part,
    check_size,
    first_parts,
    load_complete,
    read_columns,
    read_parts,
)
from sad_hpc.dataset.schema import ShardEntry
from sad_hpc.experiment.methods import METHODS, Method
from sad_hpc.pretrain.importance import dit_weights, least_return, pair_returns, with_cuts
from sad_hpc.storage.node_memory import Allocate, shared_arrays
from sad_hpc.storage.run import Run
from sad_hpc.tasks.base import TaskFamily, make_family
from sad_hpc.tasks.logged import held_out_rows

SHARED_BYTES = 64 * 2**20
"""Size of a dataset from which the processes of a node share it."""

CONTEXT_PARTS = ("states", "actions", "rewards", "next_states", "images", "ends")


class TrainingColumns:
    """The training split of a run, as the columns of one method; see `Examples`.

    Args:
        run: the run of the dataset.
        method: the method.

    Raises:
        DatasetError: the dataset is missing, incomplete, or of another config.
    """

    def __init__(self, run: Run, method: str) -> None:
        self.experiment, self.method = run.experiment, METHODS[method]
        self.family = make_family(self.experiment.task)
        self._folder = run.data().path / "train"
        made_by = self.experiment.data_signature(), self.experiment.data_config()
        self.manifest = load_complete(self._folder, *made_by, self.family.fingerprint)
        self._names = _names(self.family, self.method)
        self._layout = layout(self.family, self.experiment.data)
        self._least: float | None = None
        self._parameters: NDArray[Any] | None = None
        """(n, p), of all rows, once they are read."""

    def read(self) -> Arrays:
        """Read the columns and `parameters` (n, p) of all rows.

        The processes of a node have one copy of a large dataset between them.

        Raises:
            DatasetError: a shard is missing or damaged.
        """
        parts = first_parts(self.manifest)
        if sum(part.entry.bytes for part in parts) < SHARED_BYTES:
            return self._whole(self._read(parts))
        names = sorted(self._names.values())
        key = hashlib.blake2b(repr((self.manifest.digest, names)).encode(), digest_size=16)
        found = shared_arrays(key.hexdigest(), functools.partial(self._read, parts))
        return self._whole(found)

    def read_parts(self, parts: Sequence[Part]) -> Arrays:
        """Read the columns and `parameters` (n, p) of some rows.

        Raises:
            DatasetError: a shard is missing or damaged.
        """
        return self._columns(self._read(parts))

    def _read(self, parts: Sequence[Part], allocate: Allocate | None = None) -> Arrays:
        names = list(self._names.values())
        return read_parts(self._folder, self.manifest, names, parts, self._layout, allocate)

    def _whole(self, found: Arrays) -> Arrays:
        self._parameters = found[self._names["parameters"]]
        return self._columns(found)

    def _columns(self, found: Arrays) -> Arrays:
        arrays = {key: found[name] for key, name in self._names.items()}
        if self.method.by_return:
            episodes = self._in_episodes(arrays)
            arrays["weights"] = dit_weights(self.family, self.experiment.dit, episodes, self._least)
        return arrays

    @property
    def _has_cuts(self) -> bool:
        """True if episodes may be truncated within a context, and next states show where."""
        return self.experiment.data.imported_contexts is not None and "next_states" in self._names

    def _in_episodes(self, arrays: Arrays) -> Arrays:
        return with_cuts(arrays) if self._has_cuts else arrays

    @functools.cached_property
    def n_holdout(self) -> int:
        """Number of last rows that are held out of training; logged tasks are so as a whole.

        Raises:
            UserError: too few logged tasks are left for training (see `held_out_rows`).
        """
        if self.experiment.data.has_known_tasks:
            return self.experiment.pretrain.holdout_tasks
        if self._parameters is None:
            name = self._names["parameters"]
            found = read_columns(self._folder, self.manifest, [name], columns=self._layout)
            self._parameters = found[name]
        return held_out_rows(self._parameters[:, 0], self.experiment.pretrain)

    @property
    def n_train(self) -> int:
        """Number of training rows, which are the first ones."""
        return sum(entry.rows for entry in self.manifest.in_order) - self.n_holdout

    @functools.cached_property
    def train_rows(self) -> list[int]:
        """Number of training rows of each block."""
        rows, n_train = [entry.rows for entry in self.manifest.in_order], self.n_train
        trained = [min(end, n_train) for end in itertools.accumulate(rows, initial=0)]
        return [after - before for before, after in itertools.pairwise(trained)]

    def prepare_parts(self) -> None:
        """Prepare reads of single parts; every rank must call it.

        The ranks check the sizes of all shards between them.  If DIT's weights depend on the
        returns of the whole dataset, the ranks read it once.

        Raises:
            DatasetError: a shard is missing or has another size.
        """
        rank, world_size = dist.get_rank(), dist.get_world_size()
        own = self.manifest.in_order[rank::world_size]
        for entry in own:
            check_size(self._folder / entry.name, entry)
        if self.method.by_return:
            signed = not np.issubdtype(self.family.reward_dtype, np.unsignedinteger)
            self._least = self._least_of_all(own) if signed else 0.0

    def _least_of_all(self, own: Sequence[ShardEntry]) -> float:
        needed = ("rewards", "ends", *(("states", "next_states") if self._has_cuts else ()))
        keys: list[str] = [key for key in needed if key in self._names]
        total, lowest = 0.0, float("inf")
        for entry in own:
            names = [self._names[key] for key in keys]
            part = Part(entry, 0, entry.rows)
            found = read_parts(self._folder, self.manifest, names, [part], self._layout)
            arrays = self._in_episodes({key: found[self._names[key]] for key in keys})
            returns = pair_returns(self.family, self.experiment.dit, arrays)
            total += float(returns.sum(dtype=np.float64))
            lowest = min(lowest, float(returns.min()))
        every: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(every, (total, lowest))
        return least_return(sum(each for each, _ in every), min(each for _, each in every))


def context_parts(family: TaskFamily) -> tuple[str, ...]:
    """Return the names of a context's datasets that are inputs of the model."""
    absent = {"next_states": family.frame_shape is not None}
    absent |= {"images": family.image_size is None, "ends": not family.has_ends}
    return tuple(part for part in CONTEXT_PARTS if not absent.get(part))


def _names(family: TaskFamily, method: Method) -> dict[str, str]:
    """Return the names of HDF5 datasets by column."""
    groups = family.context_groups
    context = method.context if method.context in groups else groups[0]
    names = {part: f"{context}/{part}" for part in context_parts(family)}
    names["parameters"] = "tasks/parameters"
    if method.labels is not None:
        names["query_states"] = f"{method.labels}/query_states"
        names["labels"] = f"{method.labels}/actions"
        if family.image_size is not None:
            names["query_images"] = f"{method.labels}/query_images"
    return names
