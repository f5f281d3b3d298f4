"""The order of an epoch's examples in windows of successive rows.

An epoch visits the blocks in a random order.  Their training rows form one sequence, which is cut
into windows of m batches of B examples.  Place i of a window's batches takes its m examples from
the window's rows i m to (i + 1) m - 1, in a random order.  A rank with some places of every batch
therefore reads only its part of each window, and the batches do not depend on the number of ranks.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class BlockPart(NamedTuple):
    """Successive rows of a block."""

    block: int
    start: int
    stop: int


class EpochWindows:
    """The windows of one epoch, a function of seed and epoch.

    Args:
        rows: (b,), number of training rows of each block.
        window: number of rows of a window; at least one batch is taken.
        batch: B, the examples of a batch over all ranks.
        seed: seed of the training.
        epoch: number of the epoch.
    """

    def __init__(self, rows: Sequence[int], window: int, batch: int, seed: int, epoch: int) -> None:
        self._batch, self._seed, self._epoch = batch, seed, epoch
        self._blocks = self._generator(0).permutation(len(rows))
        self._ends = np.asarray(rows)[self._blocks].cumsum()
        self.length = max(1, window // batch)
        """m: batches of a window; the last window can have fewer."""
        self._batches = int(self._ends[-1]) // batch

    @property
    def count(self) -> int:
        """Number of windows."""
        return -(-self._batches // self.length)

    def parts(self, window: int, first: int, last: int) -> list[BlockPart]:
        """Return the rows that the places `first` to `last` - 1 of a window's batches take."""
        start, length = self._span(window)
        low, high = start + first * length, start + last * length
        parts = []
        for number in range(int(np.searchsorted(self._ends, low, "right")), len(self._blocks)):
            end = int(self._ends[number])
            begin = int(self._ends[number - 1]) if number else 0
            if begin >= high:
                break
            rows = slice(max(low, begin) - begin, min(high, end) - begin)
            if rows.stop > rows.start:
                parts.append(BlockPart(int(self._blocks[number]), rows.start, rows.stop))
        return parts

    def order(self, window: int, first: int, last: int) -> NDArray[np.int64]:
        """Return which of the rows of `parts` each batch takes, (m, `last` - `first`)."""
        _, length = self._span(window)
        own = [
            self._generator(1 + window, place).permutation(length) for place in range(first, last)
        ]
        return np.stack(own, axis=1) + length * np.arange(last - first)

    def _span(self, window: int) -> tuple[int, int]:
        """Return the first row of a window in the epoch's sequence, and its number of batches."""
        begun = window * self.length
        return begun * self._batch, min(self.length, self._batches - begun)

    def _generator(self, *purpose: int) -> np.random.Generator:
        words = np.random.SeedSequence([self._seed, self._epoch], spawn_key=purpose)
        return np.random.default_rng(words)
