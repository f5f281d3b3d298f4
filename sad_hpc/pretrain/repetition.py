"""Contexts with repetitions: what a training does to a share of its contexts.

A context of Algorithm 1 holds about one reward in a hundred transitions, and seldom the same
transition twice.  An agent that has found the goal stays on it: its last episode is one rewarded
transition many times over.  Models that have never seen such contexts answer them badly, although
they say the same: repeating a transition tells nothing new of a task whose steps are certain. So
some contexts are drawn anew from themselves, with replacement, by uneven weights, which may favour
their rewarded transitions.
"""

import numpy as np
from numpy.typing import NDArray

from sad_hpc.kernels.random import uneven_shares

SHAPES = (0.02, 2.0)
"""Of the gamma distribution of a context's weights, log-uniform: from a few transitions that fill
the context to nearly all of them about equally often."""


def repetitions(
    seed: int, step: int, rewarded: NDArray[np.bool_], share: float, favour: float = 1.0
) -> NDArray[np.int64] | None:
    """Return which of its transitions each context of a step's batch holds at each place, (n, T).

    A function of seed, step and the whole batch, whatever the number of ranks.  None if no context
    ever has repetitions (`share` 0); those that have none are 0..T-1 as they are.

    Args:
        seed: of the training.
        step: of the optimizer.
        rewarded: (n, T), of the contexts of the whole batch.
        share: probability that a context has repetitions.
        favour: the weights of a context's rewarded transitions are multiplied by a factor of its
            own, log-uniform from 1 to this.
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
    """Return T draws with replacement from 0..T-1 a row, by its weights (n, T), which sum to 1, (n,
    T).
    """
    count, horizon = weights.shape
    cumulative = weights.cumsum(axis=1)
    # One search for all rows: row i's cumulative weights lie in (i, i + 1].
    rows = np.arange(count)[:, None]
    uniforms = generator.random((count, horizon))
    found = np.searchsorted((cumulative + rows).ravel(), (uniforms + rows).ravel(), side="right")
    return np.minimum(found.reshape(count, horizon) - rows * horizon, horizon - 1)
