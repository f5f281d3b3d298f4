"""Training examples of a method: compact tensors, read once, and the order of their use."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from sad_hpc.dataset.reader import load_complete, read_columns
from sad_hpc.methods import METHODS
from sad_hpc.model import Context
from sad_hpc.run import Run

CONTEXT_PARTS = ("states", "actions", "rewards", "next_states")


@dataclass(frozen=True)
class Batch:
    """B examples on the device."""

    query_states: Tensor
    """(B, d) uint8"""
    context: Context
    labels: Tensor
    """(B,) int64"""


class Examples:
    """All of a method's examples on the device, in the dataset's dtypes (one-hot comes later).

    The last `holdout_tasks` training tasks are kept out of training.
    """

    def __init__(self, columns: dict[str, Tensor], holdout: int) -> None:
        self._columns = columns
        self.n_holdout = holdout
        self.n_train = len(columns["labels"]) - holdout

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
        names = {part: f"{source.context}/{part}" for part in CONTEXT_PARTS}
        names |= {"query_states": f"{source.labels}/query_states"}
        names |= {"labels": f"{source.labels}/actions"}
        arrays = read_columns(folder, manifest, list(names.values()))
        columns = {key: torch.from_numpy(arrays[name]).to(device) for key, name in names.items()}
        return cls(columns, experiment.pretrain.holdout_tasks)

    @property
    def device(self) -> torch.device:
        """Where the examples are."""
        return self._columns["labels"].device

    def batch(self, rows: Tensor) -> Batch:
        """The examples with these row numbers."""
        columns = {name: column[rows] for name, column in self._columns.items()}
        context = Context(**{part: columns[part] for part in CONTEXT_PARTS})
        return Batch(columns["query_states"], context, columns["labels"].long())

    def order(self, seed: int, epoch: int) -> Tensor:
        """(n_train,) a permutation that depends on seed and epoch, not on the number of ranks."""
        permutation = np.random.default_rng([seed, epoch]).permutation(self.n_train)
        return torch.from_numpy(permutation).to(self.device)

    def holdout_rows(self, rank: int, world_size: int) -> Tensor:
        """This rank's share of the held-out rows."""
        rows = torch.arange(self.n_train, self.n_train + self.n_holdout, device=self.device)
        return rows[rank::world_size]
