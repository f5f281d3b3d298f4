"""Validation tasks: distinct training tasks whose contexts a training does not see.

The dataset's tasks repeat few distinct ones, such as the goals of Darkroom.  Held-out tasks of the
dataset therefore repeat tasks of the training; validation tasks do not.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

STREAM = 1
"""Number that separates this draw from other draws by the seed of a split."""


def drawn_tasks(distinct: NDArray[Any], share: float, seed: int) -> NDArray[Any]:
    """Draw validation tasks from the distinct training tasks.

    At least one task is for validation and at least one for training; of fewer than two tasks none
    is drawn.

    Args:
        distinct: (M, p) parameters of the distinct training tasks, in any order.
        share: share of them that is for validation.
        seed: seed of the split; 0 if the family has none.

    Returns:
        (m, p), m = share x M rounded.
    """
    every = np.unique(distinct, axis=0)
    count = min(max(1, round(share * len(every))), len(every) - 1)
    order = np.random.default_rng([seed, STREAM]).permutation(len(every))
    return every[order[: max(0, count)]]


def are_among(parameters: NDArray[Any], tasks: NDArray[Any]) -> NDArray[np.bool_]:
    """Return whether rows (n, p) are among some tasks (m, p), (n,)."""
    known = set(map(tuple, tasks.tolist()))
    return np.array([tuple(row) in known for row in parameters.tolist()], np.bool_)
