"""Imported contexts: logged transitions of training tasks, divided into a dataset's blocks.

    runs/<experiment>/contexts/minari-<digest>/     shard-00000.h5 ... manifest.json

A shard has the groups `transitions` and `tasks` of a block.  The folder's name has the digest of
all shards.  A config names the folder in `data.imported_contexts`, so other content changes the
dataset's signature.  Collecting reads one shard for each block and makes its labels.  Minari is
required for the import only.
"""

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sad_hpc.dataset.layout import Column, layout
from sad_hpc.dataset.logged import LoggedTasks
from sad_hpc.dataset.reader import read_shard
from sad_hpc.dataset.schema import FORMAT_VERSION, Manifest
from sad_hpc.dataset.writer import arrays_content, write_shard
from sad_hpc.distill.block import Block, Given, Transitions
from sad_hpc.errors import DatasetError, UserError
from sad_hpc.experiment.config import differences, resolved, signature
from sad_hpc.experiment.experiment import Experiment
from sad_hpc.storage.files import write_error
from sad_hpc.tasks.base import TaskFamily, make_family

PREFIX = "minari-"
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
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # A rename makes the complete folder visible at once.
        with tempfile.TemporaryDirectory(dir=folder, prefix=".import-") as unfinished:
            made = Path(unfinished) / "contexts"
            made.mkdir()
            _write(made, manifest, logged, experiment.data.block_tasks)
            name = _name(manifest)
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
        path = folder / str(experiment.data.imported_contexts)
        family = make_family(experiment.task)
        wanted = _nothing_yet(experiment, family)
        try:
            manifest = Manifest.load(path)
        except DatasetError as error:
            raise UserError(f"no imported contexts at {path}: {REMEDY}") from error
        if changed := differences(manifest.config, wanted.config):
            raise UserError(f"{path} is of another config ({'; '.join(changed)}): import it again")
        if not manifest.complete or _name(manifest) != path.name:
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


def _write(folder: Path, manifest: Manifest, logged: LoggedTasks, block_tasks: int) -> None:
    """Write every block, add it to the manifest, and save the manifest."""
    attributes = {"format_version": FORMAT_VERSION, "signature": manifest.signature}
    for number in range(manifest.n_blocks):
        first = number * block_tasks
        given = logged.given(first, min(block_tasks, manifest.n_tasks - first))
        block = Block.of(first, given.parameters, {"transitions": given.context}, {})
        content = arrays_content(block.arrays, attributes)
        manifest.shards[number] = write_shard(folder, number, block, content)
    manifest.save(folder)


def _name(manifest: Manifest) -> str:
    return PREFIX + manifest.digest[:12]
