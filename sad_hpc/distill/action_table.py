"""Tables of the incumbent's actions in numbered states, which rollouts of a later round follow.

The incumbent is the model of the round before.  It is asked in every state of a task, given the
task's context.  In the kernels the type of the table decides whether a rollout takes the likeliest
action or draws one.
"""

from typing import NamedTuple

import numpy as np
from numba.extending import overload
from numpy.typing import NDArray

from sad_hpc.experiment.numbers import action_dtype
from sad_hpc.kernels.random import next_double
from sad_hpc.tasks.mdps import bounds


class LikeliestActions(NamedTuple):
    """The likeliest action in each state of n tasks."""

    likeliest: NDArray[np.unsignedinteger]
    """(n, S)"""


class DrawnActions(NamedTuple):
    """The distribution over actions in each state of n tasks."""

    likeliest: NDArray[np.unsignedinteger]
    """(n, S)"""
    bounds: NDArray[np.float32]
    """(n, S, A): cumulative probabilities; see `mdps.bounds`."""


ActionTable = LikeliestActions | DrawnActions


def action_table(logits: NDArray[np.float32], temperature: float) -> ActionTable:
    """Return the table of logits (n, S, A); a temperature of 0 stands for the likeliest actions."""
    likeliest = logits.argmax(axis=-1).astype(action_dtype(logits.shape[-1]))
    if temperature == 0:
        return LikeliestActions(likeliest)
    scaled = (logits - logits.max(axis=-1, keepdims=True)).astype(np.float64) / temperature
    weights = np.exp(scaled)
    chances = weights / weights.sum(axis=-1, keepdims=True)
    return DrawnActions(likeliest, bounds(chances).astype(np.float32))


def next_action(table, task, state, stream):  # type: ignore[no-untyped-def]
    """In a kernel: return the action of a rollout in a state."""
    raise NotImplementedError("kernels only")


@overload(next_action)
def _next_action(table, task, state, stream):  # type: ignore[no-untyped-def]
    def likeliest(table, task, state, stream):  # type: ignore[no-untyped-def]
        return np.uint64(table.likeliest[task, state])

    def drawn(table, task, state, stream):  # type: ignore[no-untyped-def]
        number, action = next_double(stream), np.uint64(0)
        for other in range(table.bounds.shape[2]):  # without a branch to mispredict
            action += np.uint64(number >= table.bounds[task, state, other])
        return action

    return {LikeliestActions: likeliest, DrawnActions: drawn}[table.instance_class]
