"""Q of a policy and of the optimal one, by iterating the Bellman equations."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sad_hpc.errors import ConfigError
from sad_hpc.tasks.mdps import FiniteMDPs

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
    mdps: FiniteMDPs,
    policy: NDArray[np.float64],
    discount: float = GAMMA,
    threshold: float = THRESHOLD,
) -> QTables:
    """Q of a policy (A,), the same in every state: the Bellman expectation equation."""
    return _iterate(mdps, lambda q: q @ policy, discount, threshold)


def optimal_q(mdps: FiniteMDPs, discount: float = GAMMA, threshold: float = THRESHOLD) -> QTables:
    """Q of the optimal policy: the Bellman optimality equation."""
    return _iterate(mdps, lambda q: q.max(axis=-1), discount, threshold)


def _iterate(
    mdps: FiniteMDPs,
    backup: Callable[[NDArray[np.float64]], NDArray[np.float64]],
    discount: float,
    threshold: float,
) -> QTables:
    """`backup` says of Q (M, S, A) what being in a state is worth, (M, S)."""
    if not 0 < discount < 1:
        raise ConfigError(f"gamma={discount} must lie between 0 and 1")
    q = np.zeros(mdps.sizes)
    errors: list[float] = []
    while len(errors) < MAX_ITERATIONS:
        target = mdps.action_values(backup(q), discount)
        errors.append(float(np.abs(target - q).max()))
        if errors[-1] <= threshold:
            return QTables(q, np.array(errors), discount)
        q = target
    raise ConfigError(f"threshold={threshold:g} is not reached in {MAX_ITERATIONS:,} iterations")
