"""The number types of datasets and kernels: integers of actions and states, and float32.

PyTorch has few operations for uint16, so int16 follows uint8.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sad_hpc.errors import ConfigError

MOST_STATES = 2**16
"""Most states of a tabular family; kernels index them in uint16."""

LARGEST_NUMBER = 1e30
"""Largest magnitude.  Differences, and sums over the longest episode, then fit into float32."""

NOT_IN_RANGE = f"which is not within ±{LARGEST_NUMBER:g}, the range for float32"
"""Part of an error message about a number outside the range."""


def integer_dtype(largest: int, what: str) -> np.dtype[Any]:
    """Return the smallest supported type for the integers 0..`largest`.

    Raises:
        ConfigError: int16 is too small; the message begins with `what`.
    """
    for candidate in (np.uint8, np.int16):
        if largest <= np.iinfo(candidate).max:
            return np.dtype(candidate)
    raise ConfigError(f"{what} more than {np.iinfo(np.int16).max:,} are not supported")


def action_dtype(n_actions: int) -> np.dtype[Any]:
    """Return the type of actions 0..n_actions - 1; its largest value is never an action.

    Raises:
        ConfigError: the number of actions is too large.
    """
    return integer_dtype(n_actions, f"{n_actions:,} actions:")


def no_labels(count: int, n_actions: int) -> NDArray[Any]:
    """Return (count,) unknown action labels (see `labelled`)."""
    dtype = action_dtype(n_actions)
    return np.full(count, np.iinfo(dtype).max, dtype)


def labelled(actions: NDArray[Any]) -> NDArray[np.bool_]:
    """Return a mask of the known action labels."""
    known: NDArray[np.bool_] = actions != np.iinfo(actions.dtype).max
    return known


def is_in_range(number: float) -> bool:
    """Return whether a number is finite and at most LARGEST_NUMBER in magnitude."""
    return -LARGEST_NUMBER <= number <= LARGEST_NUMBER


def in_range(numbers: NDArray[Any]) -> NDArray[np.bool_]:
    """Return `is_in_range` of each number."""
    within: NDArray[np.bool_] = np.abs(numbers) <= LARGEST_NUMBER
    return within


def reward_fault(reward: float, sparse: bool) -> str | None:
    """Describe what is wrong with a reward, or return None.

    Args:
        reward: reward of a transition.
        sparse: whether it must be 0 or 1.
    """
    if not is_in_range(reward):
        return f"its reward is {reward:g}, {NOT_IN_RANGE}"
    if sparse and reward not in (0, 1):
        return (
            f"its reward is {reward:g}, but task.rewards=sparse needs 0 or 1; "
            "set task.rewards=dense"
        )
    return None
