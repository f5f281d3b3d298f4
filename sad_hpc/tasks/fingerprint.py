"""Digests of the user's code, and fingerprints of environments.

A digest is part of the dataset's signature, so an edited environment gets new data.  A signature
covers settings and the text of the user's modules.  It does not cover random numbers that a module
draws at import, the modules that it imports, or the order of a set of strings.  Because of these,
two processes can have different environments under one signature; their fingerprints then differ.
"""

import hashlib
import inspect
import sys
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Fingerprint: TypeAlias = tuple[float, ...]

TOLERANCE = 1e-3
"""Relative tolerance.  Rounding differs between machines and grows in the course of an episode."""

KNOWN = {"sad_hpc", "gymnasium", "numpy", *sys.stdlib_module_names}
"""Packages without digests: revisions of this package and versioned Gymnasium ids cover them."""


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


def code_digests(classes: Iterable[type]) -> tuple[str, ...]:
    """Return the digests of the modules that define these classes and their bases, sorted.

    Modules of KNOWN and modules without a source file are left out.  Imports of a module are not
    followed.
    """
    modules = {base.__module__ for each in classes for base in each.__mro__}
    own = {name for name in modules if name.partition(".")[0] not in KNOWN}
    return tuple(digest for name in sorted(own) if (digest := _digest(name)) is not None)


def _digest(module: str) -> str | None:
    """Return the BLAKE2b digest of a module's source text, in hex, with normalized line ends."""
    try:
        text = inspect.getsource(sys.modules[module])
    except (KeyError, OSError, TypeError):
        return None
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
