"""The numbers that environments may give: those with which float32 can reckon."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

LARGEST_NUMBER = 1e30
"""In size.  float32 then holds their differences, and their sums over the longest episode."""

NOT_IN_RANGE = f"which is not within ±{LARGEST_NUMBER:g}, the range for float32"
"""What is wrong with another number, for messages."""


def is_in_range(number: float) -> bool:
    """Whether a number is finite, and at most LARGEST_NUMBER in size."""
    return -LARGEST_NUMBER <= number <= LARGEST_NUMBER


def in_range(numbers: NDArray[Any]) -> NDArray[np.bool_]:
    """`is_in_range` of each."""
    within: NDArray[np.bool_] = np.abs(numbers) <= LARGEST_NUMBER
    return within


def reward_fault(reward: float, sparse: bool) -> str | None:
    """What is wrong with a reward, in words; None: nothing.

    Args:
        reward: of a transition.
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
