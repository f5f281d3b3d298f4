"""The range of observations and rewards: numbers that float32 arithmetic can handle."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

LARGEST_NUMBER = 1e30
"""Largest magnitude.  Differences, and sums over the longest episode, then fit into float32."""

NOT_IN_RANGE = f"which is not within ±{LARGEST_NUMBER:g}, the range for float32"
"""Part of an error message about a number outside the range."""


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
