"""Fingerprints of environments.

A signature covers settings and the text of the user's modules (`code_digests`).  It does not cover
random numbers that a module draws at import, the modules that it imports, or the order of a set of
strings.  Because of these, two processes can have different environments under one signature; their
fingerprints then differ.
"""

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Fingerprint: TypeAlias = tuple[float, ...]

TOLERANCE = 1e-3
"""Relative tolerance.  Rounding differs between machines and grows in the course of an episode."""


def fingerprint(columns: NDArray[Any]) -> Fingerprint:
    """Summarize observations or rewards of some tasks.

    Args:
        columns: (steps, tasks, ...), such as the observations of random play.

    Returns:
        one number for each task.
    """
    # Step by step, because images are large in float64.
    total = sum(np.arcsinh(step.astype(np.float64)) for step in columns)
    compressed = (total / len(columns)).reshape(columns.shape[1], -1)
    # Unequal weights distinguish components that are swapped.
    return tuple((compressed @ np.cos(np.arange(compressed.shape[1]))).tolist())


def are_alike(one: Sequence[float] | None, other: Sequence[float] | None) -> bool:
    """Return whether two fingerprints are of the same environment; None matches any."""
    if one is None or other is None:
        return True
    return len(one) == len(other) and np.allclose(one, other, TOLERANCE, TOLERANCE / 100)
