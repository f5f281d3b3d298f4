"""Numbers by which data know the environment of another process again.

A signature covers settings and the text of the user's modules.  It does not cover random numbers
that a module draws when it is imported, nor what it imports, nor the order of a set of strings:
with these, two processes have different environments under one signature.
"""

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Fingerprint: TypeAlias = tuple[float, ...]

TOLERANCE = 1e-3
"""Between machines, whose last bits differ and grow in the course of an episode."""


def fingerprint(columns: NDArray[np.floating]) -> Fingerprint:
    """Summarize what was seen of some tasks.

    Args:
        columns: (steps, tasks, d), such as the observations of random play.

    Returns:
        a number for each task.
    """
    compressed = np.arcsinh(columns.astype(np.float64)).mean(axis=0)
    # A sum with equal weights would not tell components that are swapped.
    return tuple((compressed @ np.cos(np.arange(columns.shape[2]))).tolist())


def are_alike(one: Sequence[float] | None, other: Sequence[float] | None) -> bool:
    """Whether two fingerprints are of the same environment; None is that of any."""
    if one is None or other is None:
        return True
    return len(one) == len(other) and np.allclose(one, other, TOLERANCE, TOLERANCE / 100)
