"""Resampled contexts, which replace a share of the training contexts.

A context of Algorithm 1 has few rewards and few repeated transitions.  An agent that has found the
goal stays on it, so its last episode repeats one rewarded transition.  A model without such
contexts in training answers them poorly, although repetitions have no new information in a
deterministic task.  A resampled context draws its transitions from the original one with
replacement, by uneven weights that can favor rewarded transitions.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sad_hpc.kernels.random import uneven_shares

SHAPES = (0.02, 2.0)
"""Range of the log-uniform shape of the gamma distribution of weights.  Small shapes repeat few
transitions; large ones have nearly equal weights."""


class Share(NamedTuple):
    """A rank's part of a batch of `size` contexts."""

    start: int
    stop: int
    size: int


def repetitions(
    seed: int,
    step: int,
    rewarded: NDArray[np.bool_],
    probability: float,
    favour: float = 1.0,
    share: Share | None = None,
) -> NDArray[np.int64]:
    """Draw the indices of the transitions of a share's contexts, (B, T).

    Each context's are a function of seed, step and its place in the batch, for any number of ranks.
    Contexts that are not resampled have the indices 0..T-1.

    Args:
        seed: seed of the training.
        step: step of the optimizer.
        rewarded: (B, T), whether transitions of the share are rewarded.
        probability: probability that a context is resampled.
        favour: largest factor of the weights of rewarded transitions; each context's factor is
            log-uniform from 1 to it.
        share: the share; None: the whole batch.
    """
    share = share or Share(0, len(rewarded), len(rewarded))
    horizon = rewarded.shape[1]
    generator = np.random.default_rng([seed, step, horizon])
    chosen = np.flatnonzero(generator.random(share.size) < probability)
    weights = uneven_shares(len(chosen), horizon, SHAPES, generator)
    factors = np.ones((len(chosen), 1))
    if favour > 1:
        factors = np.exp(generator.uniform(0, np.log(favour), factors.shape))
    uniforms = generator.random((len(chosen), horizon))
    own = np.flatnonzero((share.start <= chosen) & (chosen < share.stop))
    rows, weights = chosen[own] - share.start, weights[own]
    if favour > 1:
        weights *= np.where(rewarded[rows], factors[own], 1)
        weights /= weights.sum(axis=1, keepdims=True)
    places = np.tile(np.arange(horizon), (share.stop - share.start, 1))
    places[rows] = _drawn(weights, uniforms[own], own)
    return places


def _drawn(
    weights: NDArray[np.float64], uniforms: NDArray[np.float64], numbers: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Draw T indices from 0..T-1 in each of n rows with replacement, (n, T).

    Args:
        weights: (n, T), probabilities of the indices; rows sum to 1.
        uniforms: (n, T), the random numbers.
        numbers: (n,), increasing numbers of the rows, which keep their sums apart.
    """
    count, horizon = weights.shape
    cumulative = weights.cumsum(axis=1)
    # One search for all rows: row i's cumulative weights lie in (i, i + 1].
    rows = numbers[:, None]
    found = np.searchsorted((cumulative + rows).ravel(), (uniforms + rows).ravel(), side="right")
    first = np.arange(count)[:, None] * horizon
    return np.minimum(found.reshape(count, horizon) - first, horizon - 1)
