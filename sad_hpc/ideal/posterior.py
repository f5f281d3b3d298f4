"""The exact posterior over a tabular family's tasks, and what the ideal DPT* answers by it.

Which action a context shows says nothing about its task.  So under a uniform prior the posterior of
a task is proportional to how likely it makes the outcomes of all transitions, and the states that
follow from none: all where a context's states are drawn, otherwise those that episodes begin in.
Where steps are certain, these are the same in all tasks, and the posterior is uniform over tasks
that contradict no transition, neither by its reward nor by its next state.  DPT*'s labels are drawn
from the optimal actions of the task: a model of it that makes no mistake answers with their
distribution under the posterior.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sad_hpc.tasks.base import SPLITS
from sad_hpc.tasks.mdps import FiniteMDPs, StochasticMDPs, TabularMDPs
from sad_hpc.tasks.tabular import TABLE_ENTRIES, TabularFamily

Weights = NDArray[Any]
"""How likely tasks make something: yes or no where steps are certain, else chances."""


def consistent(
    mdps: FiniteMDPs,
    states: NDArray[np.integer[Any]],
    actions: NDArray[np.integer[Any]],
    rewards: NDArray[Any],
    next_states: NDArray[np.integer[Any]],
    ends: NDArray[Any] | None = None,
    *,
    drawn: bool = False,
) -> Weights:
    """Return which of G tasks each transition could have come from, or with which chance, (n, T,
    G).

    Args:
        mdps: one a task (M = G).
        states: (n, T) numbers.
        actions: (n, T).
        rewards: (n, T).
        next_states: (n, T) numbers.
        ends: (n, T); None: no episode has ended.
        drawn: whether each state is drawn from those that its task can be in, all as likely, and
            does not follow from the transition before, or from a start.
    """
    if isinstance(mdps, StochasticMDPs):
        first = np.ones(states.shape, np.bool_)
        if not drawn:
            first[:, 1:] = False if ends is None else ends[:, :-1]
        occupied = mdps.occupied
        firsts = occupied / occupied.sum(axis=1, keepdims=True) if drawn else mdps.starts
        chances = np.empty((*actions.shape, mdps.sizes[0]))
        for task in range(mdps.sizes[0]):
            may = mdps.outcomes.at(np.full_like(states, task, np.int64), states, actions)
            happened = may.equal(rewards, next_states, ends)
            be = np.where(first, firsts[task, states], 1)
            chances[..., task] = be * (may.chances * happened).sum(axis=-1)
        return chances
    assert isinstance(mdps, TabularMDPs)
    paid = np.moveaxis(mdps.rewards, 0, -1)[states, actions]
    moved = np.moveaxis(mdps.next_states, 0, -1)[states, actions]
    return (paid == rewards[..., None]) & (moved == next_states[..., None])


def after_prefixes(could: Weights) -> Weights:
    """(n, T, G) of `consistent` -> (n, T + 1, G): the same of all transitions of each prefix.

    Chances are given up to a factor of each context and prefix: the likeliest task has 1.
    """
    start = np.ones_like(could[:, :1])
    every = np.concatenate([start, could], axis=1)
    if every.dtype == np.bool_:
        return np.logical_and.accumulate(every, axis=1)
    with np.errstate(divide="ignore"):
        sums = np.log(every).cumsum(axis=1)
    likeliest = sums.max(axis=-1, keepdims=True)
    return np.exp(sums - np.where(np.isfinite(likeliest), likeliest, 0))


def after_all(could: Weights) -> Weights:
    """(n, T, G) of `consistent` -> (n, G): the same of all transitions together."""
    if could.dtype == np.bool_:
        return np.logical_and.reduce(could, axis=1)
    return after_prefixes(could)[:, -1]


def together(one: Weights, other: Weights) -> Weights:
    """Return the weights after what both have seen, (n, G)."""
    if one.dtype == other.dtype == np.bool_:
        return one & other
    return after_all(np.stack([one, other], axis=1).astype(np.float64))


class Posterior:
    """A uniform prior over G tasks, and the ideal answers after some were ruled out.

    Args:
        mdps: one a task (M = G).
        optimal: (G, S, A), whether an action is optimal in a state of a task.
    """

    def __init__(self, mdps: FiniteMDPs, optimal: NDArray[np.bool_]) -> None:
        self.mdps = mdps
        counts = optimal.sum(axis=-1, keepdims=True)
        # Whole numbers, so that sums are exact and equally good actions stay equally good.
        self._whole = int(np.lcm.reduce(np.unique(counts)))
        self._weights = optimal * (self._whole / counts)

    @classmethod
    def of_family(cls, family: TabularFamily, splits: Sequence[str] = SPLITS) -> "Posterior | None":
        """All distinct tasks of some splits; None where their tables would fill the memory."""
        parameters = np.concatenate([family.distinct[split] for split in splits])
        if len(parameters) * family.table_entries > TABLE_ENTRIES:
            return None
        return cls(family.mdps(parameters), family.optimal_actions(parameters))

    @property
    def n_tasks(self) -> int:
        """G"""
        return self.mdps.sizes[0]

    def probabilities(self, alive: Weights) -> NDArray[np.float64]:
        """Return the posterior mean of the distribution that is uniform over optimal actions, (n,
        S, A).

        Args:
            alive: (n, G), the tasks that nothing contradicts, or how likely they are.

        Raises:
            ValueError: in some row there are none.
        """
        left = alive.sum(axis=1)
        if not left.all():
            raise ValueError("a context contradicts every task of the prior")
        _, states, actions = self._weights.shape
        sums = alive.astype(np.float64) @ self._weights.reshape(self.n_tasks, states * actions)
        return sums.reshape(-1, states, actions) / (left[:, None, None] * self._whole)
