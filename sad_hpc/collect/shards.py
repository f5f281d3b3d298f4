"""The work of a rank: make, render, compress and write blocks of tasks."""

import functools
import sys
from pathlib import Path
from typing import Any

from sad_hpc.collect.images import add_images
from sad_hpc.collect.throughput import Throughput
from sad_hpc.dataset.imported import ImportedContexts
from sad_hpc.dataset.schema import Manifest, ShardEntry
from sad_hpc.dataset.writer import shard_content, write_shard
from sad_hpc.distill import Block, Incumbent, make_block
from sad_hpc.errors import EnvironmentFailure
from sad_hpc.experiment.sections import DataConfig
from sad_hpc.kernels.interruption import Interrupted, interruptible
from sad_hpc.parallel import preemption
from sad_hpc.tasks.base import TaskFamily
from sad_hpc.tasks.miniworld.render_process import shared_process
from sad_hpc.user_code import UserCode

TRIES = 3
"""Number of tries for a block in which the user's environment fails."""

MOST_FAILURES = 3
"""Number of failed blocks after which a rank starts no other block."""


class ShardMaker:
    """Maker of a split's shards, one block at a time.

    Args:
        folder: folder of the split.
        manifest: manifest of the split.
        family: family of the tasks.
        data: settings of contexts and labels.
        incumbent: policy of label rollouts; None: the behavior policy.
    """

    def __init__(
        self,
        folder: Path,
        manifest: Manifest,
        family: TaskFamily,
        data: DataConfig,
        incumbent: Incumbent | None,
    ) -> None:
        self._folder, self._manifest, self._family, self._data = folder, manifest, family, data
        self._options = {} if incumbent is None else {"incumbent": incumbent}
        self.imported: ImportedContexts | None = None
        """Imported contexts; None: contexts are drawn."""
        self.spent = Throughput()
        self.lost = False
        """True if a signal interrupted a block."""
        self.failures: dict[int, str] = {}
        """Error of each failed block, by block number."""

    def begins_no_more(self) -> bool:
        """Return whether a signal has arrived, or MOST_FAILURES blocks have failed."""
        return preemption.requested() or len(self.failures) >= MOST_FAILURES

    def make(self, number: int) -> ShardEntry | None:
        """Make a block's shard; return None if a signal interrupts it or its environment fails."""
        block = self._distilled(number)
        if block is None:
            return None
        spent = self.spent
        if self._family.image_size is not None:
            with spent.phase("rendering"):
                block = add_images(block, shared_process(self._family.image_size).render)
        with spent.phase("compression"):
            content = shard_content(
                block, self._manifest.signature, self._manifest.config, self._family.name
            )
        with spent.phase("I/O"):
            entry = write_shard(self._folder, number, block, content)
        spent.transitions += sum(block.steps.values())
        spent.bytes += entry.bytes
        return entry

    def _distilled(self, number: int) -> Block | None:
        """Return a block with contexts and labels; see `make`."""
        what = self._family, self._data, self._manifest.split, number
        options: dict[str, Any] = dict(self._options)
        if self.imported is not None:
            with self.spent.phase("I/O"):
                options["given"] = self.imported.block(number)
        make = functools.partial(make_block, *what, **options)
        doing = f"block {number} of {self._manifest.split}"
        for attempt in range(1, TRIES + 1):
            try:
                with self.spent.phase("kernels"), UserCode(lambda: doing, watched=False):
                    return interruptible(make, preemption.requested)
            except Interrupted:
                self.lost = True
                return None
            except EnvironmentFailure as error:
                failure = str(error)
            print(
                f"collect {self._manifest.split}: block {number}, "
                f"try {attempt} of {TRIES}: {failure}",
                file=sys.stderr,
                flush=True,
            )
        self.failures[number] = failure
        return None
