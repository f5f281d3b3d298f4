"""Q-tables of a policy and of the optimal policy, by iterating the Bellman equations.

Assumption 2 states that both have the same best actions in every state, for the random policy.
Correct labels need less: every best action under the random policy must be optimal.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sad_hpc.errors import ConfigError
from sad_hpc.tasks.mdps import FiniteMDPs

GAMMA, THRESHOLD = 0.99, 1e-6
"""The paper's discount, and its largest TD error of a converged Q-table."""

FINE_THRESHOLD = 1e-12
"""Threshold for families whose actions can differ by less than 1e-5."""

MAX_ITERATIONS = 10_000_000


@dataclass(frozen=True)
class QTables:
    """Converged Q-tables and their TD errors."""

    values: NDArray[np.float64]
    """(M, S, A)"""
    errors: NDArray[np.float64]
    """(K,): largest TD error of each sweep; the first sweep starts from zeros."""
    discount: float

    @property
    def iterations(self) -> int:
        """Number of sweeps over all states and actions."""
        return len(self.errors)

    def best_actions(self) -> NDArray[np.bool_]:
        """Return whether an action has the highest value in a state up to `margin`, (M, S, A)."""
        return self.values >= self.values.max(axis=-1, keepdims=True) - self.margin

    @property
    def margin(self) -> float:
        """Largest difference that counts as a tie: the error of Q is at most e / (1 - gamma)."""
        return float(self.errors[-1]) * 2 / (1 - self.discount)


def policy_q(
    mdps: FiniteMDPs,
    policy: NDArray[np.float64],
    discount: float = GAMMA,
    threshold: float = THRESHOLD,
) -> QTables:
    """Solve the Bellman expectation equation of a policy (A,) that is the same in every state."""
    return _iterate(mdps, lambda q: q @ policy, discount, threshold)


def optimal_q(mdps: FiniteMDPs, discount: float = GAMMA, threshold: float = THRESHOLD) -> QTables:
    """Solve the Bellman optimality equation."""
    return _iterate(mdps, lambda q: q.max(axis=-1), discount, threshold)


def _iterate(
    mdps: FiniteMDPs,
    backup: Callable[[NDArray[np.float64]], NDArray[np.float64]],
    discount: float,
    threshold: float,
) -> QTables:
    """Iterate a Bellman equation; `backup` maps Q (M, S, A) to state values (M, S)."""
    if not 0 < discount < 1:
        raise ConfigError(f"gamma={discount} must be between 0 and 1")
    q = np.zeros(mdps.sizes)
    errors: list[float] = []
    while len(errors) < MAX_ITERATIONS:
        target = mdps.action_values(backup(q), discount)
        errors.append(float(np.abs(target - q).max()))
        if errors[-1] <= threshold:
            return QTables(q, np.array(errors), discount)
        q = target
    raise ConfigError(f"threshold={threshold:g} is not reached in {MAX_ITERATIONS:,} iterations")


def kappa(tables: QTables) -> NDArray[np.float64]:
    """Return the gap in Q between the best action and the best of the worse actions, (M, S).

    Equally good actions count as one, because each is a correct label.  The gap is infinite if all
    actions are equally good.

    Raises:
        ConfigError: a gap cannot be distinguished from a tie.
    """
    worse = np.where(tables.best_actions(), -np.inf, tables.values)
    gaps: NDArray[np.float64] = tables.values.max(axis=-1) - worse.max(axis=-1)
    if gaps.min() < 10 * tables.margin:
        raise ConfigError(
            f"two actions differ by only {gaps.min():.1g}, which cannot be distinguished from a "
            "tie: choose a larger discount"
        )
    return gaps


@dataclass(frozen=True)
class Agreement:
    """Comparison of the random policy's best actions with the optimal actions, (M, S)."""

    misled: NDArray[np.bool_]
    """True where a best action under the random policy is not optimal, which misleads labels."""
    unequal: NDArray[np.bool_]
    """True where the two sets of best actions differ, which violates Assumption 2."""


def agreement(random: QTables, optimal: QTables) -> Agreement:
    """Compare the best actions of the random policy with the optimal ones in every state."""
    ours, best = random.best_actions(), optimal.best_actions()
    return Agreement(np.any(ours & ~best, axis=-1), np.any(ours != best, axis=-1))
