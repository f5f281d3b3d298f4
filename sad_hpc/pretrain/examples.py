"""Training examples of a method: compact tensors, read once, and the order of their use."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sad_hpc.dataset.reader import Arrays, load_complete, read_columns
from sad_hpc.experiment.methods import METHODS, Method
from sad_hpc.model.transformer import Context
from sad_hpc.storage.run import Run
from sad_hpc.tasks.base import TaskFamily, make_family

CONTEXT_PARTS = ("states", "actions", "rewards", "next_states")


def context_parts(family: TaskFamily) -> tuple[str, ...]:
    """Datasets of a context that a model of this family is shown."""
    return CONTEXT_PARTS if family.image_size is None else (*CONTEXT_PARTS, "images")


@dataclass(frozen=True)
class Batch:
    """B examples on the device."""

    query_states: Tensor
    """(B, d)"""
    query_images: Tensor | None
    """(B, s, s, 3) uint8, where states are seen as images"""
    context: Context
    labels: Tensor
    """(B,) int64"""
    weights: Tensor | None
    """(B, T + 1): of the answer after each prefix of the context; None: all are 1."""
    answer_at: Tensor
    """(B,) int64: length of the prefix after which label accuracy is measured."""


class Examples:
    """All of a method's examples on the device, in the dataset's dtypes (one-hot comes later).

    The last `holdout` training tasks are kept out of training.

    Args:
        method: says how examples are made of the columns.
        columns: context parts (n, T, ...); query_states (n, d) and labels (n,) where the method has
            labels of its own; return_to_go (n, T) where it weighs by it; images (n, T, s, s, 3)
            and query_images (n, s, s, 3) where states are seen as images.
        holdout: tasks kept out of training.
    """

    def __init__(self, method: Method, columns: dict[str, Tensor], holdout: int) -> None:
        self._method, self._columns = method, columns
        parts = [part for part in (*CONTEXT_PARTS, "images") if part in columns]
        self._context = Context(**{part: columns[part] for part in parts})
        n_tasks, self.horizon = columns["actions"].shape
        self.n_holdout = holdout
        self.n_train = n_tasks - holdout

    @classmethod
    def load(cls, run: Run, method: str, device: torch.device) -> "Examples":
        """Reads the training split through its manifest.

        Raises:
            DatasetError: the dataset is missing, incomplete, damaged, or of another config.
        """
        experiment = run.experiment
        folder = run.data().path / "train"
        manifest = load_complete(folder, experiment.data_signature(), experiment.data_config())
        source = METHODS[method]
        family = make_family(experiment.task)
        groups = family.context_groups
        context = source.context if source.context in groups else groups[0]
        has_images = family.image_size is not None
        names = {part: f"{context}/{part}" for part in context_parts(family)}
        if source.labels is not None:
            names["query_states"] = f"{source.labels}/query_states"
            names["labels"] = f"{source.labels}/actions"
            if has_images:
                names["query_images"] = f"{source.labels}/query_images"
        found = read_columns(folder, manifest, list(names.values()))
        arrays: Arrays = {key: found[name] for key, name in names.items()}
        if source.weight == "return":
            dit = experiment.dit
            arrays["return_to_go"] = dit.weight * return_to_go(arrays["rewards"], dit.discount)
        columns = {key: torch.from_numpy(array).to(device) for key, array in arrays.items()}
        return cls(source, columns, experiment.pretrain.holdout_tasks)

    @property
    def device(self) -> torch.device:
        """Where the examples are."""
        return self._columns["actions"].device

    def batch(self, rows: Tensor, times: Tensor) -> Batch:
        """The examples with these row numbers.

        Args:
            rows: (B,).
            times: (B,) in 0..T-1: which transition is the query, for AD and DIT.
        """
        context = self._context.map(lambda part: part[rows])
        full = torch.full_like(rows, self.horizon)
        if self._method.labels is not None:
            queries, labels = self._columns["query_states"][rows], self._columns["labels"][rows]
            images = self._columns["query_images"][rows] if context.images is not None else None
            return Batch(queries, images, context, labels.long(), None, full)
        here = torch.arange(len(rows), device=rows.device)
        queries, labels = context.states[here, times], context.actions[here, times].long()
        images = None if context.images is None else context.images[here, times]
        weights = torch.zeros(len(rows), self.horizon + 1, device=rows.device)
        if self._method.weight == "history":
            # The mean over all prefixes then is the mean over the one that counts.
            weights[here, times] = self.horizon + 1
            return Batch(queries, images, context, labels, weights, times)
        weights += self._columns["return_to_go"][rows, times].unsqueeze(1)
        return Batch(queries, images, context, labels, weights, full)

    def order(self, seed: int, epoch: int) -> Tensor:
        """(n_train,) a permutation that depends on seed and epoch, not on the number of ranks."""
        permutation = np.random.default_rng([seed, epoch]).permutation(self.n_train)
        return torch.from_numpy(permutation).to(self.device)

    def times(self, seed: int, step: int, size: int) -> Tensor:
        """(size,) query times of a step's whole batch, drawn uniformly from 0..T-1."""
        drawn = np.random.default_rng([seed, step]).integers(self.horizon, size=size)
        return torch.from_numpy(drawn).to(self.device)

    def holdout(self, rank: int, world_size: int) -> tuple[Tensor, Tensor]:
        """Rows and query times of this rank's share of the held-out tasks."""
        rows = torch.arange(self.n_train, self.n_train + self.n_holdout, device=self.device)
        times = self.times(0, 0, self.n_holdout)
        return rows[rank::world_size], times[rank::world_size]


def return_to_go(rewards: NDArray[np.generic], discount: float) -> NDArray[np.float32]:
    """(n, T): sum over t' >= t of discount^(t' - t) x reward_t', for rewards (n, T)."""
    result = rewards.astype(np.float32)
    for t in range(result.shape[1] - 2, -1, -1):
        result[:, t] += np.float32(discount) * result[:, t + 1]
    return result
