"""One block of tasks: the arrays of its dataset file, and the transitions spent on them."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sad_hpc.distill.labels import Labels
from sad_hpc.experiment.behavior_policy import policy_table
from sad_hpc.experiment.sections import DataConfig
from sad_hpc.kernels.random import stream
from sad_hpc.tasks.base import SPLITS, TaskFamily

LABELS = ("sad", "dpt", "dpt_star")
"""Groups of labels; AD and DIT take theirs from the contexts."""


@dataclass(frozen=True)
class Draw:
    """The tasks, behavior policy and random streams of one block."""

    first: int
    """Index of the block's first task in its split."""
    count: int
    """n: its number of tasks."""
    policy: NDArray[Any]
    """Table of the behavior policy (see `policy_table`)."""
    streams: dict[str, NDArray[np.uint64]]
    """Random stream of each purpose."""

    @classmethod
    def of(
        cls, family: TaskFamily, data: DataConfig, split: str, block: int, purposes: Iterable[str]
    ) -> "Draw":
        """Return the draw of a block, a function of seed, split and block alone."""
        first = block * data.block_tasks
        return cls(
            first,
            min(data.block_tasks, family.n_tasks(split, data.tasks) - first),
            policy_table(data.behavior_policy, family.n_actions),
            {name: stream(data.seed, SPLITS.index(split), block, name) for name in purposes},
        )


@dataclass(frozen=True)
class Transitions:
    """T transitions of each of n tasks."""

    states: NDArray[Any]
    """(n, T, d), or (n, T) numbers of them; images (n, T, H, W, C)"""
    actions: NDArray[Any]
    """(n, T) numbers, or (n, T, a) float32 vectors"""
    rewards: NDArray[Any]
    """(n, T)"""
    next_states: NDArray[Any]
    """Like `states`."""
    ends: NDArray[np.uint8] | None = None
    """(n, T): whether an episode ends with the transition; None: episodes never end early."""

    @property
    def parts(self) -> dict[str, NDArray[Any]]:
        """The arrays by name, without `ends` where it is None."""
        return {name: part for name, part in vars(self).items() if part is not None}

    def map(self, change: Callable[[NDArray[Any]], NDArray[Any]]) -> "Transitions":
        """Return transitions with `change` applied to every array."""
        return Transitions(**{name: change(part) for name, part in self.parts.items()})

    def at(self, tasks: NDArray[Any]) -> "Transitions":
        """Return the transitions of some tasks, by numbers or a mask."""
        return self.map(lambda part: part[tasks])

    def replaced(self, rows: NDArray[np.int64], others: "Transitions") -> "Transitions":
        """Return transitions in which `others` (m, T) replace those of tasks `rows` (m,)."""
        changed = self.map(np.copy)
        for name, part in changed.parts.items():
            part[rows] = others.parts[name]
        return changed

    def followed_by(self, others: "Transitions") -> "Transitions":
        """Return both transitions, joined along time."""
        mine, theirs = self.parts, others.parts
        return Transitions(
            **{name: np.concatenate([mine[name], theirs[name]], axis=1) for name in mine}
        )


@dataclass(frozen=True)
class Given:
    """n training tasks with contexts imported from logged episodes."""

    parameters: NDArray[Any]
    """(n, p)"""
    context: Transitions
    """(n, T, ...), in time order"""


@dataclass(frozen=True)
class Block:
    """n tasks with all arrays that a dataset file stores for them."""

    arrays: dict[str, NDArray[Any]]
    """Dataset name (such as `transitions/states`) -> array whose first axis is the task."""
    steps: dict[str, int]
    """Environment steps, by purpose: a group of contexts, or `labels_` and a kind of label."""

    @classmethod
    def of(
        cls,
        first: int,
        parameters: NDArray[Any],
        contexts: Mapping[str, Transitions],
        labels: Mapping[str, Labels],
        spent: Mapping[str, int] | None = None,
    ) -> "Block":
        """Return the block of tasks `first` .. `first + n - 1`.

        Args:
            first: index of the first task in its split.
            parameters: (n, p) of the tasks.
            contexts: by HDF5 group.
            labels: by LABELS; the K labels of a task are adjacent.
            spent: steps of longer histories from which contexts are sampled, by HDF5 group.
        """
        arrays: dict[str, NDArray[Any]] = {}
        for group, context in contexts.items():
            arrays |= {f"{group}/{name}": array for name, array in context.parts.items()}
        arrays["tasks/index"] = np.arange(first, first + len(parameters), dtype=np.int64)
        arrays["tasks/parameters"] = parameters
        for name, label in labels.items():
            by_task = label.by_task(len(parameters))
            arrays[f"labels/{name}/query_states"] = by_task.query_states
            arrays[f"labels/{name}/actions"] = by_task.actions
        steps = {"transitions": 0, "episodes": 0}
        steps |= {group: context.rewards.size for group, context in contexts.items()}
        steps |= {f"labels_{name}": label.transitions for name, label in labels.items()}
        steps |= spent or {}
        return cls(arrays, steps)
