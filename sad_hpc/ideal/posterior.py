"""The exact posterior over a tabular family's tasks, and the Bayes-optimal answers of DPT*.

The actions in a context are no evidence of its task.  Under a uniform prior, the posterior of a
task is proportional to the likelihood of all transitions' outcomes and of the drawn states.  Drawn
states are all states of a context with `drawn`, and otherwise the start states of episodes.  With
deterministic steps, the posterior is uniform over the tasks that contradict no reward and no next
state.  Labels of DPT* are drawn from a task's optimal actions, so the Bayes-optimal answer is their
distribution under the posterior.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sad_hpc.tasks.base import SPLITS
from sad_hpc.tasks.mdps import FiniteMDPs, StochasticMDPs, TabularMDPs
from sad_hpc.tasks.tabular import TABLE_ENTRIES, TabularFamily

Weights = NDArray[Any]
"""Likelihoods of tasks: booleans for deterministic steps, otherwise probabilities."""


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
    """Return the likelihood of each transition in each of G tasks, (n, T, G).

    Args:
        mdps: one MDP for each task (M = G).
        states: (n, T) numbers.
        actions: (n, T).
        rewards: (n, T).
        next_states: (n, T) numbers.
        ends: (n, T); None: no episode ended.
        drawn: whether each state is drawn uniformly from the occupied states of its task, instead
            of following from the transition before.
    """
    chances: Callable[[NDArray[Any]], Weights]
    if isinstance(mdps, StochasticMDPs):
        ended = np.zeros(states.shape, np.bool_) if ends is None else ends != 0
        first = np.ones(states.shape, np.bool_)
        if not drawn:
            first[:, 1:] = ended[:, :-1]
        columns = [states, actions, rewards, next_states, ended, first]
        chances = functools.partial(_chances, mdps, drawn=drawn)
    else:
        assert isinstance(mdps, TabularMDPs)
        columns = [states, actions, rewards, next_states]
        chances = functools.partial(_agree, mdps)
    transitions = np.stack([each.ravel() for each in columns], axis=-1)
    distinct, which = np.unique(transitions, axis=0, return_inverse=True)
    return chances(distinct)[which.reshape(states.shape)]


def _agree(mdps: TabularMDPs, transitions: NDArray[Any]) -> NDArray[np.bool_]:
    """Return whether each transition happens in each of G tasks, (n, G).

    Args:
        mdps: one MDP for each task (M = G).
        transitions: (n, 4): state, action, reward, next state.
    """
    states, actions, next_states = transitions[:, [0, 1, 3]].T.astype(np.int64)
    paid = mdps.rewards[:, states, actions] == transitions[:, 2]
    return (paid & (mdps.next_states[:, states, actions] == next_states)).T.copy()


def _chances(
    mdps: StochasticMDPs, transitions: NDArray[np.float64], drawn: bool
) -> NDArray[np.float64]:
    """Return the likelihood of each transition in each of G tasks, (n, G).

    Args:
        mdps: one MDP for each task (M = G).
        transitions: (n, 6): state, action, reward, next state, whether the episode ended, and
            whether the state counts as a drawn one.
        drawn: see `consistent`.
    """
    rewards = transitions[:, 2].astype(np.float32)
    states, actions, next_states = transitions[:, [0, 1, 3]].T.astype(np.int64)
    ended, first = transitions[:, 4:].T.astype(np.bool_)
    occupied = mdps.occupied
    firsts = occupied / occupied.sum(axis=1, keepdims=True) if drawn else mdps.starts
    chances = np.empty((len(transitions), mdps.sizes[0]))
    for task in range(mdps.sizes[0]):
        may = mdps.outcomes.at(np.full_like(states, task), states, actions)
        happened = may.equal(rewards, next_states, ended)
        be = np.where(first, firsts[task, states], 1)
        chances[:, task] = be * (may.chances * happened).sum(axis=-1)
    return chances


def after_prefixes(could: Weights) -> Weights:
    """Combine likelihoods (n, T, G) of `consistent` over each prefix, (n, T + 1, G).

    Probabilities are scaled so that the most likely task of each prefix has 1.
    """
    start = np.ones_like(could[:, :1])
    every = np.concatenate([start, could], axis=1)
    if every.dtype == np.bool_:
        return np.logical_and.accumulate(every, axis=1)
    with np.errstate(divide="ignore"):
        return _scaled(np.log(every).cumsum(axis=1))


def _scaled(logs: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return likelihoods (..., G) of their logarithms; the most likely task has 1."""
    likeliest = logs.max(axis=-1, keepdims=True)
    return np.exp(logs - np.where(np.isfinite(likeliest), likeliest, 0))


def after_all(could: Weights) -> Weights:
    """Combine likelihoods (n, T, G) of `consistent` over all transitions, (n, G)."""
    if could.dtype == np.bool_:
        return np.logical_and.reduce(could, axis=1)
    with np.errstate(divide="ignore"):
        sums = np.log(could).sum(axis=1)
    return _scaled(sums)


def together(one: Weights, other: Weights) -> Weights:
    """Combine two likelihoods of independent observations, (n, G)."""
    if one.dtype == other.dtype == np.bool_:
        return one & other
    return after_all(np.stack([one, other], axis=1).astype(np.float64))


def prior_tasks(family: TabularFamily, splits: Sequence[str] = SPLITS) -> NDArray[Any] | None:
    """Return the distinct tasks of splits, (G, p); None if their tables are too large."""
    parameters = np.concatenate([family.distinct[split] for split in splits])
    return parameters if len(parameters) * family.table_entries <= TABLE_ENTRIES else None


class Posterior:
    """A uniform prior over G tasks, and Bayes-optimal answers for likelihoods of the tasks.

    Args:
        mdps: one MDP for each task (M = G).
        law: (G, S, A), the joint distribution of query states and labels of a task, up to a factor
            that is the same for all tasks.
    """

    def __init__(self, mdps: FiniteMDPs, law: NDArray[np.float64]) -> None:
        self.mdps, self._law = mdps, law

    @classmethod
    def of_family(cls, family: TabularFamily, splits: Sequence[str] = SPLITS) -> "Posterior | None":
        """Return a posterior over distinct tasks of splits; None if their tables are too large."""
        parameters = prior_tasks(family, splits)
        if parameters is None:
            return None
        return cls(family.mdps(parameters), optimal_law(family.optimal_actions(parameters)))

    @property
    def n_tasks(self) -> int:
        """Number of tasks G."""
        return self.mdps.sizes[0]

    def probabilities(self, alive: Weights) -> NDArray[np.float64]:
        """Return the posterior distribution of the label in each state, (n, S, A).

        It is uniform in states that no query has.

        Args:
            alive: (n, G), likelihoods of the tasks.

        Raises:
            ValueError: all likelihoods of a row are 0.
        """
        if not alive.any(axis=1).all():
            raise ValueError("a context contradicts every task of the prior")
        _, states, actions = self._law.shape
        sums = alive.astype(np.float64) @ self._law.reshape(self.n_tasks, states * actions)
        sums = sums.reshape(-1, states, actions)
        totals = sums.sum(axis=2, keepdims=True)
        return np.divide(sums, totals, out=np.full_like(sums, 1 / actions), where=totals > 0)


def optimal_law(optimal: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Return the law of uniform draws among optimal actions in every state, (G, S, A).

    It is of integers, so that its sums are exact and equally good actions stay equal.

    Args:
        optimal: (G, S, A), whether an action is optimal in a state of a task.
    """
    counts = optimal.sum(axis=-1, keepdims=True)
    return optimal * (np.lcm.reduce(np.unique(counts)) / counts)
