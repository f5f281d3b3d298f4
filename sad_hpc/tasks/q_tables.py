"""Q-tables of a policy and of the optimal policy, by iterating the Bellman equations."""

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
