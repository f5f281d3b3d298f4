"""Comparison of the random policy's Q with the optimal Q.

Assumption 2 states that both have the same best actions in every state.  Correct labels need less:
every best action under the random policy must be optimal.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sad_hpc.errors import ConfigError
from sad_hpc.tasks.mdps import TabularMDPs
from sad_hpc.tasks.q_tables import QTables


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


def line_world(left: float, right: float) -> TabularMDPs:
    """Return the paper's example: five states in a row, and the actions left and right.

    Args:
        left: reward of a step that ends in the first state.
        right: reward of a step that ends in the last one.
    """
    states = np.arange(5)
    following = np.stack([np.maximum(states - 1, 0), np.minimum(states + 1, 4)], axis=1)
    rewards = np.where(following == 0, left, np.where(following == 4, right, 0.0))
    return TabularMDPs(following[None].astype(np.uint16), rewards[None].astype(np.float32))
