"""`inspect` and `verify`: a summary of a dataset, and a check of its content."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sad_hpc.dataset.layout import faults as layout_faults
from sad_hpc.dataset.layout import layout
from sad_hpc.dataset.reader import Arrays, read_columns, read_shard
from sad_hpc.dataset.schema import MANIFEST, REMEDY, VIRTUAL, Manifest, combined_digest
from sad_hpc.errors import DatasetError, UserError
from sad_hpc.experiment.families import family_class
from sad_hpc.experiment.sections import DataConfig
from sad_hpc.tasks.base import ORACLE, SPLITS, TaskFamily, make_family


def find_splits(path: Path) -> list[Path]:
    """Find the split folders of a split, a dataset, or a run.

    Raises:
        DatasetError: `path` has no dataset.
    """
    if (path / MANIFEST).is_file():
        return [path]
    for datasets in ([path], sorted(path.glob("data/*"))):
        splits = [folder / split for folder in datasets for split in _splits(folder)]
        if any(split.is_dir() for split in splits):
            return splits
    raise DatasetError(f"no dataset at {path}: give a folder with a {MANIFEST} or one above it")


def _splits(dataset: Path) -> tuple[str, ...]:
    """Return the splits that a dataset should have; all if its config cannot be read."""
    try:
        return origin_of(Manifest.load(dataset / SPLITS[0]))[0].splits
    except DatasetError:
        return SPLITS


def origin_of(manifest: Manifest) -> tuple[TaskFamily, DataConfig]:
    """Return the task family and the `data` section of a dataset."""
    try:
        config_class = family_class(manifest.config["task"]["family"]).config_class
        family = make_family(config_class.model_validate(manifest.config["task"]))
        return family, DataConfig.model_validate(manifest.config["data"])
    except (UserError, ValueError, KeyError, TypeError) as error:
        raise DatasetError(f"the dataset's config is of another version: {error}") from error


def inspect(folder: Path) -> dict[str, Any]:
    """Summarize a split as JSON values: shapes, config, counts, digest and label accuracy."""
    manifest = Manifest.load(folder)
    family, data = origin_of(manifest)
    if not manifest.shards:
        raise DatasetError(f"{folder} has no finished shard yet; {REMEDY}")
    first = read_shard(folder, manifest, next(iter(manifest.shards.values())))
    rows = sum(entry.rows for entry in manifest.shards.values())
    return {
        "path": str(folder),
        "signature": manifest.signature,
        "split": manifest.split,
        "complete": manifest.complete,
        "tasks": rows,
        "shards": f"{len(manifest.shards)} of {manifest.n_blocks}",
        "bytes": sum(entry.bytes for entry in manifest.shards.values()),
        "digest": manifest.digest,
        "datasets": {
            name: f"{(rows, *array.shape[1:])} {array.dtype}" for name, array in first.items()
        },
        "steps": manifest.steps,
        "steps_per_task": {name: count / rows for name, count in manifest.steps.items()},
        "label_accuracy": label_accuracy(folder, manifest, family, data),
        "config": manifest.config,
    }


def label_accuracy(
    folder: Path, manifest: Manifest, family: TaskFamily, data: DataConfig
) -> dict[str, float]:
    """Return the share of optimal action labels by method; empty if optimal actions are unknown.

    Raises:
        DatasetError: the dataset is damaged, or its labels are not valid in the family.
    """
    if ORACLE not in family.label_groups:
        return {}
    names = [
        f"labels/{label}/{part}"
        for label in family.label_groups
        for part in ("query_states", "actions")
    ]
    names.append("tasks/parameters")
    columns = read_columns(folder, manifest, names, columns=layout(family, data))
    accuracy = {}
    for label in family.label_groups:
        try:
            right = _are_optimal(columns, label, family)
        except DatasetError as error:
            raise DatasetError(f"{folder}: {error}; {REMEDY}") from None
        accuracy[label] = float(right.mean())
    return accuracy


@dataclass(frozen=True)
class Verdict:
    """Result of `verify` for one split."""

    folder: Path
    digest: str
    rows: int
    faults: list[str]


SAMPLED_TASKS = 64
"""Number of tasks of each shard whose contexts `verify` compares with the dynamics."""


def verify(folder: Path) -> Verdict:
    """Check every shard's bytes, schema and row count, and the dynamics of sampled contexts."""
    manifest = Manifest.load(folder)
    family, data = origin_of(manifest)
    # In learning histories and imported contexts, the next episode can begin without an end.
    cut = bool(data.q_learning_steps or (data.imported_contexts and manifest.split == "train"))
    faults: list[str] = []
    if not manifest.complete:
        faults.append(f"{folder}: {len(manifest.shards)} of {manifest.n_blocks} shards; {REMEDY}")
    elif not (folder / VIRTUAL).is_file():
        faults.append(f"{folder / VIRTUAL} is missing; {REMEDY}")
    columns = layout(family, data)
    checksums, rows = [], 0
    for block in sorted(manifest.shards):
        entry = manifest.shards[block]
        try:
            arrays = read_shard(folder, manifest, entry)
        except (DatasetError, OSError, RuntimeError) as error:
            faults.append(str(error))
            rows += entry.rows
            continue
        found = [f"{name} is missing" for name in columns if name not in arrays]
        found += layout_faults(arrays, entry.rows, columns)
        # Malformed columns cannot be checked any further.
        try:
            found = found or [
                *_index_faults(arrays, block * data.block_tasks),
                *_label_faults(arrays, family, data.oracle_error > 0),
                *_dynamics_faults(arrays, family, cut),
            ]
        except DatasetError as error:
            found = [str(error)]
        faults += [f"{folder / entry.name}: {fault}" for fault in found]
        checksums.append(entry.checksum)
        rows += entry.rows
    if rows != manifest.n_tasks and not faults:
        faults.append(f"{folder}: {rows} rows instead of {manifest.n_tasks}")
    return Verdict(folder, combined_digest(checksums), rows, faults)


def _index_faults(arrays: Arrays, first: int) -> list[str]:
    index = arrays["tasks/index"]
    right = bool((index == np.arange(first, first + len(index))).all())
    return [] if right else [f"tasks/index does not count from {first}"]


def _label_faults(arrays: Arrays, family: TaskFamily, oracle_errs: bool) -> list[str]:
    """Check that all query states are valid, and that the oracle's labels are optimal.

    Args:
        arrays: arrays of the shard.
        family: family of the tasks.
        oracle_errs: whether some of the oracle's labels are wrong on purpose.
    """
    if ORACLE not in family.label_groups:
        return []
    right = {label: _are_optimal(arrays, label, family) for label in family.label_groups}
    if oracle_errs or right[ORACLE].all():
        return []
    return ["labels/dpt_star holds actions that are not optimal"]


def _are_optimal(arrays: Arrays, label: str, family: TaskFamily) -> NDArray[np.bool_]:
    """Return whether a group's labels are optimal, (n, K).

    Raises:
        DatasetError: a task, state or action is not valid in the family.
    """
    queries, actions = (arrays[f"labels/{label}/{part}"] for part in ("query_states", "actions"))
    try:
        return family.are_optimal(arrays["tasks/parameters"], queries, actions)
    except (LookupError, TypeError, ValueError):
        raise DatasetError(
            f"labels/{label} has states or actions that are not valid in {family.name}"
        ) from None


def _dynamics_faults(arrays: Arrays, family: TaskFamily, cut: bool) -> list[str]:
    """Check the contexts of a shard's first tasks against the dynamics of these tasks.

    Args:
        arrays: arrays of the shard.
        family: family of the tasks.
        cut: whether an episode can begin without an end before it.
    """
    faults = []
    for group in family.context_groups:
        names = ["states", "actions", "rewards", "next_states"]
        names += ["ends"] if family.has_ends else []
        if all(f"{group}/{name}" in arrays for name in names):
            context = {name: arrays[f"{group}/{name}"][:SAMPLED_TASKS] for name in names}
            parameters = arrays["tasks/parameters"][:SAMPLED_TASKS]
            try:
                faults += family.dynamics_faults(parameters, group, context, cut)
            except (LookupError, TypeError, ValueError):
                faults.append(f"{group} has tasks, states or actions not valid in {family.name}")
    return faults
