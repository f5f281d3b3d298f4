"""Shapes, types and ranges of a dataset's columns, derived from its config."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sad_hpc.experiment.sections import DataConfig
from sad_hpc.tasks.bandit import BanditFamily
from sad_hpc.tasks.base import TaskFamily
from sad_hpc.tasks.tabular import TabularFamily


@dataclass(frozen=True)
class Column:
    """One HDF5 dataset of a shard; its first axis is the task."""

    shape: tuple[int | None, ...]
    """Shape for one task; None: any length."""
    whole: bool = False
    """True if its dtype is an integer type."""
    low: float = -np.inf
    high: float = np.inf
    """Smallest and largest value."""

    def fault(self, array: NDArray[Any], rows: int) -> str | None:
        """Describe what is wrong with an array of `rows` tasks, or return None."""
        expected = (rows, *self.shape)
        if len(array.shape) != len(expected) or any(
            length not in (None, found) for found, length in zip(array.shape, expected, strict=True)
        ):
            shape = str(expected).replace("None", "any")
            return f"has shape {array.shape} instead of {shape}"
        if self.whole and array.dtype.kind not in "iu":
            return f"holds {array.dtype} numbers instead of integers"
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            return "holds numbers that are not finite"
        bounded = np.isfinite([self.low, self.high]).any()
        if bounded and array.size and not (self.low <= array.min() and array.max() <= self.high):
            return f"holds numbers outside of {self.low:g} to {self.high:g}"
        return None


def layout(family: TaskFamily, data: DataConfig) -> dict[str, Column]:
    """Return the columns of a dataset, by name."""
    asked = data.queries_per_task
    counted = isinstance(family, TabularFamily | BanditFamily)
    state = Column(family.state_shape, whole=counted)
    if family.frame_shape is not None:
        state = Column(family.frame_shape, whole=True, low=0, high=255)
    action = Column((), whole=True, low=0, high=family.n_actions - 1)
    if family.components is not None:
        action = Column((family.components,), low=-1, high=1)
    reward = Column((), whole=np.issubdtype(family.reward_dtype, np.integer))
    end = Column((), whole=True, low=0, high=1)
    parts = {"states": state, "actions": action, "rewards": reward, "next_states": state}
    parts |= {"ends": end} if family.has_ends else {}
    labels = {"query_states": state, "actions": action}
    if family.image_size is not None:
        image = Column((family.image_size, family.image_size, 3), whole=True)
        parts["images"] = labels["query_images"] = image
    return {
        "tasks/index": Column((), whole=True),
        "tasks/parameters": Column((None,)),
        **{
            f"{group}/{name}": _times(length, column)
            for group, length in context_lengths(family, data).items()
            for name, column in parts.items()
        },
        **{
            f"labels/{label}/{name}": _times(asked, column)
            for label in family.labels_of(data)
            for name, column in labels.items()
        },
    }


def context_lengths(family: TaskFamily, data: DataConfig) -> dict[str, int]:
    """Return the number of transitions in a context, by HDF5 group."""
    lengths = dict.fromkeys(family.context_groups, family.config.horizon)
    if "episodes" in lengths:
        lengths["episodes"] *= data.shown_episodes
    return lengths


def faults(
    arrays: Mapping[str, NDArray[Any]], rows: int, columns: Mapping[str, Column]
) -> list[str]:
    """Describe what is wrong with arrays of `rows` tasks; names without a column are ignored."""
    found = {name: columns[name].fault(arrays[name], rows) for name in columns if name in arrays}
    return [f"{name} {fault}" for name, fault in found.items() if fault is not None]


def _times(length: int, column: Column) -> Column:
    """Return a column with `length` entries of another column in each task."""
    return replace(column, shape=(length, *column.shape))
