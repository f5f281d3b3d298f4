"""Imported contexts: logged transitions of training tasks, divided into a dataset's blocks.

    runs/<experiment>/contexts/minari-<digest>/     shard-00000.h5 ... manifest.json
    runs/<experiment>/contexts/logs-<digest>/       the same, of tasks without parameters

A shard has the groups `transitions` and `tasks` of a block.  The folder's name has the digest of
all shards.  A config names the folder in `data.imported_contexts`, so other content changes the
dataset's signature.  Collecting reads one shard for each block and makes its labels.  Minari is
required for the import only.
"""

import math
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sad_hpc.dataset.layout import Column, layout
from sad_hpc.dataset.logged import LoggedTasks
from sad_hpc.dataset.reader import read_shard
from sad_hpc.dataset.schema import FORMAT_VERSION, Manifest
from sad_hpc.dataset.windows import Windows
from sad_hpc.dataset.writer import arrays_content, write_shard
from sad_hpc.distill.block import Block, Given, Transitions
from sad_hpc.errors import DatasetError, UserError
from sad_hpc.experiment import plain_yaml
from sad_hpc.experiment.config import differences, resolved, signature
from sad_hpc.experiment.experiment import Experiment
from sad_hpc.experiment.sections import LOGS
from sad_hpc.storage.files import atomic_path, write_error
from sad_hpc.tasks.base import TaskFamily, make_family
from sad_hpc.tasks.logged import LoggedConfig, held_out_rows
from sad_hpc.tasks.simulated import SimulatedFamily

PREFIX = "minari-"
LOOKED_AT = 256
"""Most contexts from which the scales of observations and rewards are taken."""

REMEDY = "`sad-hpc import CONFIG --minari DATASET` makes them"


def import_contexts(source: Path, experiment: Experiment[Any], folder: Path) -> str:
    """Write the contexts of an experiment's training tasks, from a Minari dataset.

    Args:
        source: folder of the Minari dataset; its first tasks are used, as many as the experiment
            has for training.
        experiment: experiment with the tasks, T and blocks.
        folder: folder of all imported contexts of the run.

    Returns:
        the value for `data.imported_contexts`.

    Raises:
        UserError: see `LoggedTasks`; or there are too few tasks, or the folder cannot be written.
        ConfigError: other settings of `data` do not allow imported contexts.
    """
    family = make_family(experiment.task)
    family.check_data(experiment.data.model_copy(update={"imported_contexts": PREFIX}))
    logged, manifest = LoggedTasks(source, family), _nothing_yet(experiment, family)
    if len(logged) < manifest.n_tasks:
        raise UserError(
            f"{source} has {len(logged)} tasks, but data.tasks={experiment.data.tasks} needs "
            f"{manifest.n_tasks} for training: lower data.tasks"
        )
    return _stored(folder, PREFIX, manifest, experiment.data.block_tasks, logged.given)


def import_logs(
    sources: Sequence[Path], key: str | None, experiment: Experiment[Any], folder: Path
) -> "ImportedLogs":
    """Write training contexts of tasks without parameters, from any Minari datasets.

    Args:
        sources: folders of the Minari datasets.
        key: see `Windows`.
        experiment: experiment with T, blocks and the number of contexts.
        folder: folder of all imported contexts of the run.

    Raises:
        UserError: see `Windows` and `held_out_rows`; or the family has other spaces, or the folder
            cannot be written.
        ConfigError: other settings of `data` do not allow such contexts.
    """
    family = make_family(experiment.task)
    family.check_data(experiment.data.model_copy(update={"imported_contexts": LOGS}))
    n_train = family.n_tasks("train", experiment.data.tasks)
    windows = Windows(sources, key, experiment.task.horizon, n_train)
    n_held_out = held_out_rows(windows.tasks, experiment.pretrain)
    task = experiment.task
    if isinstance(task, LoggedConfig):
        if windows.first.observations.frame_shape is not None:
            raise UserError(f"{sources[0]} has images: task.family=logged supports numbers only")
        few = range(0, n_train, math.ceil(n_train / LOOKED_AT))
        context = windows.given(few).context
        states = context.states.reshape(-1, context.states.shape[2])
        task = task.fitted(windows.first.actions, states, context.rewards.ravel())
        experiment = experiment.model_copy(update={"task": task})
        family = make_family(task)
    assert isinstance(family, SimulatedFamily)  # takes_logs
    windows.check_fits(family)

    def given(first: int, count: int) -> Given:
        return windows.given(range(first, first + count), family.sparse_reward)

    manifest = _nothing_yet(experiment, family)
    name = _stored(folder, LOGS, manifest, experiment.data.block_tasks, given)
    data = experiment.data.model_copy(update={"imported_contexts": name})
    return ImportedLogs(name, windows, n_held_out, experiment.model_copy(update={"data": data}))


@dataclass(frozen=True)
class ImportedLogs:
    """The outcome of an import of tasks without parameters."""

    name: str
    """The value for `data.imported_contexts`."""
    windows: Windows
    n_held_out: int
    """Number of the last contexts, of whole tasks, that are held out of training."""
    experiment: Experiment[Any]
    """The experiment with these contexts.  If its family has no environment, the `task` section has
    the actions and scales of the logs."""

    def __str__(self) -> str:
        """Return one line about the contexts and their tasks."""
        tasks = self.windows.tasks
        n_tasks, n_held_out = (len(np.unique(each)) for each in (tasks, tasks[-self.n_held_out :]))
        told = (
            f"{len(tasks):,} contexts of {n_tasks:,} tasks; held-out tasks: {n_held_out:,}, with "
            f"{self.n_held_out:,} contexts"
        )
        if short := self.windows.n_short:
            told += f"; {short:,} tasks with fewer than task.horizon steps are left out"
        return told

    def write_config(self, path: Path) -> bool:
        """Write the experiment as a config, unless the file exists.

        Returns:
            False if the file exists and differs.
        """
        content = self.experiment.model_dump(mode="json", exclude_unset=True)
        text = plain_yaml.written(content).encode()
        if path.exists():
            return path.read_bytes() == text
        with atomic_path(path) as temporary:
            temporary.write_bytes(text)
        return True


def _stored(
    folder: Path,
    prefix: str,
    manifest: Manifest,
    block_tasks: int,
    given: Callable[[int, int], Given],
) -> str:
    """Write all contexts into a new folder of `folder`, and return its name.

    Args:
        folder: folder of all imported contexts of the run.
        prefix: first part of the name, before the digest.
        manifest: the empty manifest.
        block_tasks: contexts in a block.
        given: function of the first row and the number of rows that returns contexts.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # A rename makes the complete folder visible at once.
        with tempfile.TemporaryDirectory(dir=folder, prefix=".import-") as unfinished:
            made = Path(unfinished) / "contexts"
            made.mkdir()
            _write(made, manifest, block_tasks, given)
            name = prefix + _mark(manifest)
            if not (folder / name).exists():  # an existing one has the same content
                made.rename(folder / name)
    except OSError as error:
        raise write_error(folder, error) from error
    return name


@dataclass(frozen=True)
class ImportedContexts:
    """The contexts of `data.imported_contexts`, block by block."""

    folder: Path
    manifest: Manifest
    columns: Mapping[str, Column]
    """Layout of its shards."""

    @classmethod
    def load(cls, folder: Path, experiment: Experiment[Any]) -> "ImportedContexts":
        """Load the contexts of an experiment from the folder of its run's imported contexts.

        Raises:
            UserError: they are missing, damaged, or of other tasks, T or blocks.
        """
        family = make_family(experiment.task)
        if experiment.data.imported_contexts is None:
            raise UserError(f"{family.name} has no environment that makes contexts: {REMEDY}")
        path = folder / experiment.data.imported_contexts
        wanted = _nothing_yet(experiment, family)
        try:
            manifest = Manifest.load(path)
        except DatasetError as error:
            raise UserError(f"no imported contexts at {path}: {REMEDY}") from error
        if changed := differences(manifest.config, wanted.config):
            raise UserError(f"{path} is of another config ({'; '.join(changed)}): import it again")
        if not manifest.complete or not path.name.endswith(_mark(manifest)):
            raise UserError(f"{path} is damaged: its digest differs. Remove it; {REMEDY}")
        columns = layout(family, experiment.data)
        needed = {
            name: c for name, c in columns.items() if name.startswith(("tasks/", "transitions/"))
        }
        return cls(path, manifest, needed)

    def block(self, number: int) -> Given:
        """Read the tasks and contexts of a block.

        Raises:
            DatasetError: its shard is missing or damaged.
        """
        entry = self.manifest.shards[number]
        try:
            arrays = read_shard(self.folder, self.manifest, entry, self.columns, self.columns)
        except DatasetError as error:
            path = self.folder / entry.name
            raise DatasetError(
                f"{path} is missing or damaged: remove {self.folder}; {REMEDY}"
            ) from error
        prefix = "transitions/"
        parts = {n.removeprefix(prefix): arrays[n] for n in arrays if n.startswith(prefix)}
        return Given(arrays["tasks/parameters"], Transitions(**parts))


def _nothing_yet(experiment: Experiment[Any], family: TaskFamily) -> Manifest:
    """Return an empty manifest of the contexts that an experiment needs."""
    data = {key: getattr(experiment.data, key) for key in ("tasks", "block_tasks")}
    config = {"task": resolved(experiment.task), "data": data}
    n_tasks = family.n_tasks("train", data["tasks"])
    blocks = experiment.data.blocks(n_tasks)
    return Manifest(signature("import", config), "train", blocks, n_tasks, config, {})


def _write(
    folder: Path, manifest: Manifest, block_tasks: int, contexts: Callable[[int, int], Given]
) -> None:
    """Write every block, add it to the manifest, and save the manifest."""
    attributes = {"format_version": FORMAT_VERSION, "signature": manifest.signature}
    for number in range(manifest.n_blocks):
        first = number * block_tasks
        given = contexts(first, min(block_tasks, manifest.n_tasks - first))
        block = Block.of(first, given.parameters, {"transitions": given.context}, {})
        content = arrays_content(block.arrays, attributes)
        manifest.shards[number] = write_shard(folder, number, block, content)
    manifest.save(folder)


def _mark(manifest: Manifest) -> str:
    """Return the part of the digest that is in the name."""
    return manifest.digest[:12]
