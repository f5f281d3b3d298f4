"""Q under the random policy and Q of the optimal one, by iterating the Bellman equations.

Assumption 2 says that in every state both have the same best actions.  Labels need less: that every
best action under the random policy is an optimal one.  Both are checked state by state.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sad_hpc.errors import ConfigError
from sad_hpc.tasks.base import TabularMDPs
from sad_hpc.theory.bounds import check_discount

GAMMA, THRESHOLD = 0.99, 1e-6
"""The paper's discount, and the largest TD error of a Q-table that has converged."""

FINE_THRESHOLD = 1e-12
"""For families, whose gaps between actions may be smaller than 1e-5."""

MAX_ITERATIONS = 10_000_000


@dataclass(frozen=True)
class QTables:
    """Q-tables that have converged, and how."""

    values: NDArray[np.float64]
    """(M, S, A)"""
    errors: NDArray[np.float64]
    """(K,): the largest TD error that each sweep found; the first is that of the table of zeros."""
    discount: float

    @property
    def iterations(self) -> int:
        """Sweeps over all states and actions; the last one finds no error over the threshold."""
        return len(self.errors)

    def best_actions(self) -> NDArray[np.bool_]:
        """(M, S, A): whether an action is best in a state, up to the error that is left."""
        return self.values >= self.values.max(axis=-1, keepdims=True) - self.margin

    @property
    def margin(self) -> float:
        """Differences below this are ties: a TD error e leaves Q at most e / (1 - gamma) wrong."""
        return float(self.errors[-1]) * 2 / (1 - self.discount)


def policy_q(
    mdps: TabularMDPs,
    policy: NDArray[np.float64],
    discount: float = GAMMA,
    threshold: float = THRESHOLD,
) -> QTables:
    """Q of a policy (A,), the same in every state: the Bellman expectation equation."""
    return _iterate(mdps, lambda q: q @ policy, discount, threshold)


def optimal_q(mdps: TabularMDPs, discount: float = GAMMA, threshold: float = THRESHOLD) -> QTables:
    """Q of the optimal policy: the Bellman optimality equation."""
    return _iterate(mdps, lambda q: q.max(axis=-1), discount, threshold)


def _iterate(
    mdps: TabularMDPs,
    backup: Callable[[NDArray[np.float64]], NDArray[np.float64]],
    discount: float,
    threshold: float,
) -> QTables:
    """`backup` says of Q (M, S, A) what being in a state is worth, (M, S)."""
    check_discount(discount)
    mdp = np.arange(len(mdps.rewards))[:, None, None]
    rewards = mdps.rewards.astype(np.float64)
    q = np.zeros(rewards.shape)
    errors: list[float] = []
    while len(errors) < MAX_ITERATIONS:
        target = rewards + discount * backup(q)[mdp, mdps.next_states]
        errors.append(float(np.abs(target - q).max()))
        if errors[-1] <= threshold:
            return QTables(q, np.array(errors), discount)
        q = target
    raise ConfigError(f"threshold={threshold:g} is not reached in {MAX_ITERATIONS:,} iterations")


def kappa(tables: QTables) -> NDArray[np.float64]:
    """(M, S): Q of the best action less that of the best among the others.

    Actions that are equally good count as one: with two of them the paper's kappa would be 0, and
    either is a right answer.  Where all are equally good it is infinite.

    Raises:
        ConfigError: a gap is too small to be told from a tie.
    """
    worse = np.where(tables.best_actions(), -np.inf, tables.values)
    gaps: NDArray[np.float64] = tables.values.max(axis=-1) - worse.max(axis=-1)
    if gaps.min() < 10 * tables.margin:
        raise ConfigError(
            f"two actions differ by {gaps.min():.1g} only, which cannot be told from a tie; "
            "choose a larger discount"
        )
    return gaps


@dataclass(frozen=True)
class Agreement:
    """How the best actions under the random policy compare with the optimal ones, (M, S)."""

    misled: NDArray[np.bool_]
    """A best action under the random policy is not optimal: labels are wrong in the limit."""
    unequal: NDArray[np.bool_]
    """The two sets of best actions differ: Assumption 2 fails to the letter."""


def agreement(random: QTables, optimal: QTables) -> Agreement:
    """Compares the best actions of the random policy with the optimal ones in every state."""
    ours, best = random.best_actions(), optimal.best_actions()
    return Agreement(np.any(ours & ~best, axis=-1), np.any(ours != best, axis=-1))


def line_world(left: float, right: float) -> TabularMDPs:
    """The paper's example: five states in a row, and the actions left and right.

    Args:
        left: reward of a step that ends in the first state.
        right: reward of a step that ends in the last one.
    """
    states = np.arange(5)
    following = np.stack([np.maximum(states - 1, 0), np.minimum(states + 1, 4)], axis=1)
    rewards = np.where(following == 0, left, np.where(following == 4, right, 0.0))
    return TabularMDPs(following[None].astype(np.uint16), rewards[None].astype(np.float32))
