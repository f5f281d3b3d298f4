"""Resampled contexts, which replace a share of the training contexts.

A context of Algorithm 1 has few rewards and few repeated transitions.  An agent that has found the
goal stays on it, so its last episode repeats one rewarded transition.  A model without such
contexts in training answers them poorly, although repetitions have no new information in a
deterministic task.  A resampled context draws its transitions from the original one with
replacement, by uneven weights that can favor rewarded transitions.
"""

import numpy as np
from numpy.typing import NDArray

from sad_hpc.kernels.random import uneven_shares

SHAPES = (0.02, 2.0)
"""Range of the log-uniform shape of the gamma distribution of weights.  Small shapes repeat few
transitions; large ones have nearly equal weights."""


def repetitions(
    seed: int, step: int, rewarded: NDArray[np.bool_], share: float, favour: float = 1.0
) -> NDArray[np.int64] | None:
    """Draw the indices of the transitions of a batch's contexts, (n, T); None if `share` is 0.

    The result is a function of seed, step and the whole batch, for any number of ranks.  Contexts
    that are not resampled have the indices 0..T-1.

    Args:
        seed: seed of the training.
        step: step of the optimizer.
        rewarded: (n, T), whether transitions of the whole batch are rewarded.
        share: probability that a context is resampled.
        favour: largest factor of the weights of rewarded transitions; each context's factor is
            log-uniform from 1 to it.
    """
    if share == 0:
        return None
    size, horizon = rewarded.shape
    generator = np.random.default_rng([seed, step, horizon])
    chosen = np.flatnonzero(generator.random(size) < share)
    weights = uneven_shares(len(chosen), horizon, SHAPES, generator)
    if favour > 1:
        factors = np.exp(generator.uniform(0, np.log(favour), (len(chosen), 1)))
        weights *= np.where(rewarded[chosen], factors, 1)
        weights /= weights.sum(axis=1, keepdims=True)
    places = np.tile(np.arange(horizon), (size, 1))
    places[chosen] = _drawn(weights, generator)
    return places


def _drawn(weights: NDArray[np.float64], generator: np.random.Generator) -> NDArray[np.int64]:
    """Draw T indices (n, T) from 0..T-1 in each row with replacement, by weights that sum to 1."""
    count, horizon = weights.shape
    cumulative = weights.cumsum(axis=1)
    # One search for all rows: row i's cumulative weights lie in (i, i + 1].
    rows = np.arange(count)[:, None]
    uniforms = generator.random((count, horizon))
    found = np.searchsorted((cumulative + rows).ravel(), (uniforms + rows).ravel(), side="right")
    return np.minimum(found.reshape(count, horizon) - rows * horizon, horizon - 1)
