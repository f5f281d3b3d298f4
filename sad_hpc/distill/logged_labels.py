"""Labels of logged tasks: actions that the logs show in states of the same task."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sad_hpc.distill.block import Transitions
from sad_hpc.distill.labels import Labels


def logged_labels(
    tasks: NDArray[Any], context: Transitions, queries: int, generator: np.random.Generator
) -> Labels:
    """Return K pairs of a state and the action that was taken there, for each of n contexts.

    They are from the block's other contexts of the same task, so that a context does not contain
    its own label.  The only context of a task has pairs of its own.

    Args:
        tasks: (n,) numbers of the contexts' tasks.
        context: (n, T) transitions.
        queries: K.
        generator: random numbers of the draw.
    """
    order = np.argsort(tasks, kind="stable")
    _, group, counts = np.unique(tasks, return_inverse=True, return_counts=True)
    first = np.cumsum(counts) - counts
    rank = np.empty(len(tasks), np.int64)
    rank[order] = np.arange(len(tasks)) - first[group[order]]
    size = counts[group][:, None]
    others = generator.integers(np.maximum(size - 1, 1), size=(len(tasks), queries))
    moved = np.where(size > 1, others + 1, 0)  # never around to the context itself
    rows = order[first[group][:, None] + (rank[:, None] + moved) % size]
    steps = generator.integers(context.rewards.shape[1], size=rows.shape)
    states, actions = (part[rows, steps] for part in (context.states, context.actions))
    return Labels(
        states.reshape(rows.size, *states.shape[2:]), actions.reshape(rows.size, *actions.shape[2:])
    )
