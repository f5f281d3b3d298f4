"""The MPI driver of data collection: blocks of tasks -> shards -> manifest -> virtual dataset.

Ranks take blocks on request (`data.schedule: dynamic`) or in turn (`static`), and write each as a
shard.  Rank 0 also writes the manifest; the other ranks send it the entries of their shards.
"""

import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from typing import Any

from sad_hpc.collect.shards import TRIES, ShardMaker
from sad_hpc.collect.throughput import Throughput, peak_memory, sentence
from sad_hpc.collect.work_queue import deal
from sad_hpc.dataset.imported import ImportedContexts
from sad_hpc.dataset.reader import checked_bytes
from sad_hpc.dataset.schema import MANIFEST, VIRTUAL, Manifest, ShardEntry
from sad_hpc.dataset.writer import write_virtual_dataset
from sad_hpc.distill import Incumbent
from sad_hpc.errors import DatasetError, UnreadableError, UserError
from sad_hpc.kernels.compilation import compilation_announced
from sad_hpc.parallel import preemption
from sad_hpc.parallel.preemption import Preempted
from sad_hpc.parallel.ranks import world
from sad_hpc.storage.files import wait_until_seen
from sad_hpc.storage.progress import Progress, say_complete
from sad_hpc.storage.run import Run
from sad_hpc.storage.stage_folder import StageFolder
from sad_hpc.tasks.base import TaskFamily, make_family
from sad_hpc.tasks.fingerprint import are_alike

SAVE_SECONDS = 1.0
"""Shortest time between two writes of the manifest during collection."""

INSIDE = (
    "including interrupted ones: if a block takes longer than the job's time limit, lower "
    "data.block_tasks"
)
"""Part of the message if a signal interrupted a block."""


def collect(run: Run, incumbent: Incumbent | None = None) -> None:
    """Collect the dataset of a run, or its missing shards; every MPI rank calls this.

    Args:
        run: run of the dataset.
        incumbent: policy of label rollouts; None: the behavior policy.

    Raises:
        UserError: the folder has another dataset or cannot be written, or MPI is set up wrongly.
        Preempted: a signal stopped the collection; finished shards are saved.
    """
    communicator = world()
    with ExitStack() as stack:
        stop: Preempted | None = None
        if communicator.Get_rank() == 0:
            try:
                stack.enter_context(run.writing(run.data(), run.experiment.data_config()))
            except Preempted as signal:
                stop = signal
        # An error of rank 0 ends the job.  A signal while rank 0 waits for the folder does not, so
        # the other ranks must learn of it here.
        if stop := communicator.bcast(stop):
            raise stop
        _collect_splits(run, communicator, incumbent)


def _collect_splits(run: Run, communicator: Any, incumbent: Incumbent | None) -> None:
    family: TaskFamily = run.experiment.family
    _check_environments(communicator, family)
    folder = run.data()
    # The marker is not enough, because a repeated collection replaces damaged shards.
    collectors = [SplitCollector(run, split, communicator, incumbent) for split in family.splits]
    complete = folder.done is not None and not any(each.missing for each in collectors)
    if communicator.bcast(complete):
        if communicator.Get_rank() == 0:
            say_complete(folder)
        return
    for collector in collectors:
        collector.collect()
    if communicator.Get_rank() == 0:
        folder.complete(
            outputs=[f"{each.split}/{name}" for each in collectors for name in each.files],
            digests={each.split: each.manifest.digest for each in collectors},
            ranks=communicator.Get_size(),
            throughput={each.split: each.throughput for each in collectors},
        )
    communicator.barrier()


def _check_environments(communicator: Any, family: TaskFamily) -> None:
    """Check that all ranks have the same environment.

    Raises:
        UserError: an environment differs from that of rank 0; raised on all ranks.
    """
    found = communicator.gather(family.fingerprint) or []
    others = [rank for rank, each in enumerate(found) if not are_alike(each, found[0])]
    if others := communicator.bcast(others):
        raise UserError(
            f"the environment of rank {others[0]} differs from that of rank 0: the same seeds give "
            f"other episodes of {family.name}. Give a fixed seed to numbers that a module draws at "
            "import, and install the same libraries on all nodes"
        )


class SplitCollector:
    """Collector of one split with all ranks of `communicator`."""

    def __init__(
        self, run: Run, split: str, communicator: Any, incumbent: Incumbent | None
    ) -> None:
        self._run, self.split, self._communicator = run, split, communicator
        self._data = run.experiment.data
        self._family: TaskFamily = make_family(run.experiment.task)
        self._stage = run.data()
        self._folder = self._stage.path / split
        self.manifest = communicator.bcast(self._existing() if self._is_first else None)
        self.throughput: dict[str, Any] = {}
        """Summary of the throughput (`Throughput.summary`); empty if no shard was missing."""
        self._maker = ShardMaker(self._folder, self.manifest, self._family, self._data, incumbent)

    @property
    def _is_first(self) -> bool:
        return self._communicator.Get_rank() == 0

    @property
    def missing(self) -> list[int]:
        """Blocks without an intact shard."""
        return [b for b in range(self.manifest.n_blocks) if b not in self.manifest.shards]

    @property
    def files(self) -> list[str]:
        """Names of all files of the complete split."""
        shards = [entry.name for entry in self.manifest.shards.values()]
        return [MANIFEST, VIRTUAL, *sorted(shards)]

    def collect(self) -> None:
        """Write missing shards; rank 0 also writes the manifest and the virtual dataset."""
        start = time.perf_counter()
        imports = self._data.imported_contexts is not None or not self._family.has_environment
        if self.split == "train" and imports and self.missing:
            self._maker.imported = self._communicator.bcast(
                self._contexts() if self._is_first else None
            )
        finished = deal(
            self._communicator,
            self.missing,
            self._data.schedule,
            self._maker.make,
            self._maker.begins_no_more,
        )
        if self._is_first:
            self._keep_manifest(finished, StageFolder(f"collect {self.split}", self._stage.path))
            if not self.missing:
                shards = [self._folder / entry.name for entry in self.manifest.shards.values()]
                # Shards of other ranks can become visible late.
                wait_until_seen(lambda: all(shard.exists() for shard in shards))
                write_virtual_dataset(self._folder, self.manifest, self._family.name)
        else:
            list(finished)  # works until no block is left; yields nothing on this rank
        self._maker.spent.elapsed = time.perf_counter() - start
        self._maker.spent.peak_memory = peak_memory()
        self._report()
        self._raise_failures()
        told = self._communicator.gather((preemption.requeue_requested(), self._maker.lost))
        requeue, lost = (any(each) for each in zip(*told, strict=True)) if told else (False, False)
        left, requeue, lost = self._communicator.bcast((len(self.missing), requeue, lost))
        if left:
            reason = f"stopped with {left} blocks of {self.split} left"
            raise Preempted(f"{reason}, {INSIDE}" if lost else reason, requeue)

    def _contexts(self) -> ImportedContexts:
        return ImportedContexts.load(self._run.contexts, self._run.experiment)

    def _raise_failures(self) -> None:
        told = self._communicator.gather(self._maker.failures)
        failures = {block: why for each in told or () for block, why in each.items()}
        if failures := self._communicator.bcast(failures):
            block = min(failures)
            raise UserError(
                f"{len(failures)} of {self.manifest.n_blocks} blocks of {self.split} failed, each "
                f"{TRIES} times; block {block}: {failures[block]}. Correct the environment and "
                "collect again: other blocks are kept unless the environment's module has changed"
            )

    def _existing(self) -> Manifest:
        """Return the stored manifest without missing or damaged shards, or a new one.

        Raises:
            UnreadableError: it exists and cannot be read; without it all blocks would be made anew.
        """
        n_tasks = self._family.n_tasks(self.split, self._data.tasks)
        config = self._run.experiment.data_config()
        fresh = Manifest(
            signature=self._run.experiment.data_signature(),
            split=self.split,
            n_blocks=self._data.blocks(n_tasks),
            n_tasks=n_tasks,
            config=config,
            shards={},
            fingerprint=self._family.fingerprint,
        )
        try:
            stored = Manifest.load(self._folder)
        except UnreadableError:
            raise
        except DatasetError:
            return fresh
        if stored.signature == fresh.signature:
            stored.check_environment(self._folder, fresh.fingerprint)
            fresh.shards = {b: s for b, s in stored.shards.items() if self._is_intact(s)}
        return fresh

    def _is_intact(self, entry: ShardEntry) -> bool:
        try:
            checked_bytes(self._folder / entry.name, entry)
        except DatasetError:
            return False
        return True

    def _report(self) -> None:
        ranks = self._communicator.gather(self._maker.spent)
        if self._is_first and (spent := Throughput.of_ranks(ranks)).bytes:
            self.throughput = spent.summary(len(ranks))
            print(f"collect {self.split}: {sentence(self.throughput)}", file=sys.stderr)

    def _keep_manifest(self, finished: Iterator[ShardEntry | None], stage: StageFolder) -> None:
        shards = self.manifest.shards
        with (
            Progress(stage, self.manifest.n_blocks, "blocks", len(shards)) as progress,
            compilation_announced(progress.say),
        ):
            try:
                self._list(finished, progress)
            except BaseException:
                # After any error, finished shards remain usable.
                with suppress(UserError):
                    self.manifest.save(self._folder)
                raise
            self.manifest.save(self._folder)

    def _list(self, finished: Iterator[ShardEntry | None], progress: Progress) -> None:
        start = saved = time.monotonic()
        shards, made = self.manifest.shards, 0
        rows = sum(shard.rows for shard in shards.values())
        for entry in finished:
            if entry is None:
                continue
            shards[entry.block] = entry
            rows += entry.rows
            made += sum(entry.steps.values())
            rate = made / (time.monotonic() - start)
            progress.update(len(shards), f"{rows:,} tasks, {rate:,.3g} transitions/s")
            if time.monotonic() - saved >= SAVE_SECONDS:
                self.manifest.save(self._folder)
                saved = time.monotonic()
