"""Offsets and factors that bring observations and rewards into about [-2, 2]."""

import math

import numpy as np
from numpy.typing import NDArray


def state_scales(
    observations: NDArray[np.generic],
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return the rounded mean, and inverse standard deviation, of each number of (m, d).

    A number that never changes is not scaled.
    """
    # In float64, because the squares of large numbers are infinite in float32.
    numbers = observations.astype(np.float64)
    deviations = numbers.std(axis=0).tolist()
    center = tuple(map(rounded, numbers.mean(axis=0).tolist()))
    return center, tuple(rounded(1 / each) if each > 1e-6 else 1.0 for each in deviations)


def reward_scale(rewards: NDArray[np.generic]) -> float:
    """Return the rounded inverse of the spread of rewards of any shape."""
    numbers = rewards.astype(np.float64)
    spread = float(numbers.std()) or float(np.abs(numbers).max())
    return rounded(1 / spread) if spread > 1e-6 else 1.0


def rounded(number: float) -> float:
    """Round to two digits, so that rounding on another machine does not change the model."""
    return 0.0 if number == 0 else round(number, 1 - math.floor(math.log10(abs(number))))
