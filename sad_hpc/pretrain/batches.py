"""A rank's share of each batch of a training, as a function of the position in the training.

The examples are in memory as a whole, or in windows (`pretrain.window_blocks`).
"""

from abc import ABC, abstractmethod
from concurrent.futures import Future, ThreadPoolExecutor

import torch
import torch.distributed as dist
from torch import Tensor

from sad_hpc.dataset.reader import Part, last_parts
from sad_hpc.experiment.sections import PretrainConfig
from sad_hpc.pretrain.epoch_windows import EpochWindows
from sad_hpc.pretrain.examples import Examples
from sad_hpc.pretrain.questions import Batch
from sad_hpc.pretrain.repetition import Share
from sad_hpc.pretrain.training_columns import TrainingColumns
from sad_hpc.storage.run import Run
from sad_hpc.tasks.base import Arrays


class Batches(ABC):
    """The batches of a training; every rank has its share of each.

    Args:
        config: settings of the training.
        seed: seed of the training.
        n_train: number of training examples.
    """

    def __init__(self, config: PretrainConfig, seed: int, n_train: int) -> None:
        self._seed = seed
        self.per_epoch = config.batches(n_train)
        size, rank = config.batch_size, dist.get_rank()
        part = size // dist.get_world_size()
        self._share = Share(rank * part, (rank + 1) * part, size)

    def at(self, step: int) -> Batch:
        """Return this rank's share of the batch of a step, which counts from 0.

        Raises:
            DatasetError: a shard of the next window is missing or damaged.
        """
        share = self._share
        examples, rows = self._examples(*divmod(step, self.per_epoch))
        drawn = examples.draws(self._seed, step, share.size)[share.start : share.stop]
        places = examples.places(self._seed, step, rows, share)
        return examples.batch(rows, drawn, places)

    @abstractmethod
    def _examples(self, epoch: int, batch: int) -> tuple[Examples, Tensor]:
        """Return examples, and the rows in them of this rank's share of a batch of an epoch."""


class WholeBatches(Batches):
    """Batches of examples that are all in memory."""

    def __init__(self, config: PretrainConfig, seed: int, examples: Examples) -> None:
        super().__init__(config, seed, examples.n_train)
        self._all = examples
        self._epoch, self._order = -1, torch.empty(0)

    def _examples(self, epoch: int, batch: int) -> tuple[Examples, Tensor]:
        if epoch != self._epoch:
            self._epoch, self._order = epoch, self._all.order(self._seed, epoch)
        share = self._share
        first = batch * share.size
        return self._all, self._order[first + share.start : first + share.stop]


class WindowBatches(Batches):
    """Batches of windows, of which this rank holds its part of the current one and of the next.

    A thread reads the next window.  On a GPU it waits in pinned memory of the host.

    Args:
        config: settings of the training.
        seed: seed of the training.
        source: the training split, prepared for reads of single parts.
        device: device of the examples.
    """

    def __init__(
        self, config: PretrainConfig, seed: int, source: TrainingColumns, device: torch.device
    ) -> None:
        super().__init__(config, seed, source.n_train)
        self._config, self._source, self._device = config, source, device
        self._length = self._windows(0).length
        self._thread = ThreadPoolExecutor(max_workers=1)
        self._ahead: tuple[tuple[int, int], Future[Arrays]] | None = None
        self._at: tuple[int, int] | None = None
        self._current: Examples | None = None
        self._order = torch.empty(0)

    def _examples(self, epoch: int, batch: int) -> tuple[Examples, Tensor]:
        window, number = divmod(batch, self._length)
        if self._at != (epoch, window):
            self._enter(epoch, window)
        assert self._current is not None
        return self._current, self._order[number]

    def _enter(self, epoch: int, window: int) -> None:
        """Make a window the current one, and start to read the one after it."""
        self._current = None  # no third window is in memory
        if self._ahead is None or self._ahead[0] != (epoch, window):
            self._ahead = (epoch, window), self._thread.submit(self._read, epoch, window)
        arrays = self._ahead[1].result()
        self._current = Examples.of_columns(self._source, arrays, self._device, 0)
        windows, own = self._windows(epoch), self._share
        order = torch.from_numpy(windows.order(window, own.start, own.stop))
        self._order, self._at, self._ahead = order.to(self._device), (epoch, window), None
        following = (epoch, window + 1) if window + 1 < windows.count else (epoch + 1, 0)
        if following[0] < self._config.epochs:
            self._ahead = following, self._thread.submit(self._read, *following)

    def _read(self, epoch: int, window: int) -> Arrays:
        parts = self._windows(epoch).parts(window, self._share.start, self._share.stop)
        entries = self._source.manifest.in_order
        arrays = self._source.read_parts([Part(entries[block], *rows) for block, *rows in parts])
        if self._device.type != "cuda":
            return arrays
        return {key: torch.from_numpy(a).pin_memory().numpy() for key, a in arrays.items()}

    def _windows(self, epoch: int) -> EpochWindows:
        blocks, data = self._config.window_blocks, self._source.experiment.data
        assert blocks is not None
        rows, size = blocks * data.block_tasks, self._share.size
        return EpochWindows(self._source.train_rows, rows, size, self._seed, epoch)


def make_batches(
    run: Run, method: str, seed: int, config: PretrainConfig, device: torch.device
) -> tuple[Batches, Examples]:
    """Return the batches of a training, and examples with those held out of it.

    Every rank must call it.

    Args:
        run: run of the training.
        method: method of the model.
        seed: seed of the training.
        config: settings of the training.
        device: device of the examples.

    Raises:
        DatasetError: the dataset is missing, incomplete, damaged, or of another config.
        UserError: too few logged tasks are left for training (see `held_out_rows`).
    """
    source = TrainingColumns(run, method)
    if config.window_blocks is None or config.window_blocks >= source.manifest.n_blocks:
        examples = Examples.load(source, device)
        return WholeBatches(config, seed, examples), examples
    source.prepare_parts()
    held = source.read_parts(last_parts(source.manifest, source.n_holdout))
    examples = Examples.of_columns(source, held, device, source.n_holdout)
    return WindowBatches(config, seed, source, device), examples
