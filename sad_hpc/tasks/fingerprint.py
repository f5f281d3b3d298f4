"""Fingerprints of environments, which show whether two processes have the same environment.

A signature covers settings and the text of the user's modules.  It does not cover random numbers
that a module draws at import, the modules that it imports, or the order of a set of strings.
Because of these, two processes can have different environments under one signature.
"""

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Fingerprint: TypeAlias = tuple[float, ...]

TOLERANCE = 1e-3
"""Relative tolerance.  Rounding differs between machines and grows in the course of an episode."""


def fingerprint(columns: NDArray[np.floating]) -> Fingerprint:
    """Summarize observations or rewards of some tasks.

    Args:
        columns: (steps, tasks, d), such as the observations of random play.

    Returns:
        one number for each task.
    """
    compressed = np.arcsinh(columns.astype(np.float64)).mean(axis=0)
    # Unequal weights distinguish components that are swapped.
    return tuple((compressed @ np.cos(np.arange(columns.shape[2]))).tolist())


def are_alike(one: Sequence[float] | None, other: Sequence[float] | None) -> bool:
    """Return whether two fingerprints are of the same environment; None matches any."""
    if one is None or other is None:
        return True
    return len(one) == len(other) and np.allclose(one, other, TOLERANCE, TOLERANCE / 100)
