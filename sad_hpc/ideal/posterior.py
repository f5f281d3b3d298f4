"""The exact posterior over a tabular family's tasks, and what the ideal DPT* answers by it.

Tasks are deterministic, and which state and action a context shows says nothing about its task.
So under a uniform prior the posterior is uniform over the tasks that contradict no transition,
neither by its reward nor by its next state.  DPT*'s labels are drawn from the optimal actions of
the task: a model of it that makes no mistake answers with their distribution under the posterior.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sad_hpc.tasks.base import SPLITS, TABLE_ENTRIES, TabularFamily, TabularMDPs


def consistent(
    mdps: TabularMDPs,
    states: NDArray[np.integer[Any]],
    actions: NDArray[np.integer[Any]],
    rewards: NDArray[Any],
    next_states: NDArray[np.integer[Any]],
) -> NDArray[np.bool_]:
    """(n, T, G): which of G tasks each transition could have come from.

    Args:
        mdps: one a task (M = G).
        states: (n, T) numbers.
        actions: (n, T).
        rewards: (n, T).
        next_states: (n, T) numbers.
    """
    paid = np.moveaxis(mdps.rewards, 0, -1)[states, actions]
    moved = np.moveaxis(mdps.next_states, 0, -1)[states, actions]
    return (paid == rewards[..., None]) & (moved == next_states[..., None])


def after_prefixes(could: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """(n, T, G) of `consistent` -> (n, T + 1, G): the same of all transitions of each prefix."""
    start = np.ones_like(could[:, :1])
    return np.logical_and.accumulate(np.concatenate([start, could], axis=1), axis=1)


class Posterior:
    """A uniform prior over G tasks, and the ideal answers after some were ruled out.

    Args:
        mdps: one a task (M = G).
        optimal: (G, S, A), whether an action is optimal in a state of a task.
    """

    def __init__(self, mdps: TabularMDPs, optimal: NDArray[np.bool_]) -> None:
        self.mdps = mdps
        counts = optimal.sum(axis=-1, keepdims=True)
        # Whole numbers, so that sums are exact and equally good actions stay equally good.
        self._whole = int(np.lcm.reduce(np.unique(counts)))
        self._weights = optimal * (self._whole / counts)

    @classmethod
    def of_family(cls, family: TabularFamily, splits: Sequence[str] = SPLITS) -> "Posterior | None":
        """All distinct tasks of some splits; None where their tables would fill the memory."""
        parameters = np.concatenate([family.distinct[split] for split in splits])
        if len(parameters) * family.n_states * family.n_actions > TABLE_ENTRIES:
            return None
        return cls(family.mdps(parameters), family.optimal_actions(parameters))

    @property
    def n_tasks(self) -> int:
        """G"""
        return len(self.mdps.rewards)

    def probabilities(self, alive: NDArray[np.bool_]) -> NDArray[np.float64]:
        """(n, S, A): the posterior mean of the distribution that is uniform over optimal actions.

        Args:
            alive: (n, G), the tasks that nothing contradicts.

        Raises:
            ValueError: in some row there are none.
        """
        left = alive.sum(axis=1)
        if not left.all():
            raise ValueError("a context contradicts every task of the prior")
        _, states, actions = self._weights.shape
        sums = alive.astype(np.float64) @ self._weights.reshape(self.n_tasks, states * actions)
        return sums.reshape(-1, states, actions) / (left[:, None, None] * self._whole)
