"""Q under the random policy and Q of the optimal one, compared.

Assumption 2 says that in every state both have the same best actions.  Labels need less: that every
best action under the random policy is an optimal one.  Both are checked state by state.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sad_hpc.errors import ConfigError
from sad_hpc.tasks.mdps import TabularMDPs
from sad_hpc.tasks.q_tables import QTables


def kappa(tables: QTables) -> NDArray[np.float64]:
    """Return Q of the best action less that of the best among the others, (M, S).

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
    """Compare the best actions of the random policy with the optimal ones in every state."""
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
