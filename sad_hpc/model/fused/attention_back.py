"""Backward pass of attention, which recomputes scores because they exceed the cache."""

from typing import NamedTuple

import numpy as np
from numba import njit

from sad_hpc.model.fused.attention import SIDE, bounds, dot, transposed
from sad_hpc.model.fused.products import INNER, product
from sad_hpc.model.fused.vectors import exp2, load, select_above, store

KEYS = 128
"""Number of keys in a block of scores, which fits into the first-level cache."""

_ZERO = np.float32(0)


class Slopes(NamedTuple):
    """Offsets of a head's gradients, with rows and lanes as in `Head`."""

    out: int
    """Gradients of the result (L, D)."""
    query: int
    """Gradients of queries, keys and values, initially zeros.  Those of queries and keys lack a
    factor log 2, which is in the weights."""
    across: int
    """Buffer for transposed gradients of the result (D, lanes)."""
    deltas: int
    """(lanes,) inner products of the result and its gradient."""
    scores: int
    """Buffer for KEYS x SIDE gradients of scores."""


@njit(**INNER)
def attend_back(m, q, head, limits, slopes):  # type: ignore[no-untyped-def]
    """Add the gradients of a head's queries, keys and values; see `attend` and `Slopes`."""
    first, d, third = head.first, head.width, head.row // 3
    start = slopes.out + first * third
    transposed(m, head.length - first, d, start, third, slopes.across + first, head.lanes)
    for i in range(first, head.length, SIDE):
        rows = min(SIDE, head.length - i)
        for r in range(i, i + rows):
            q[slopes.deltas + r] = dot(m, slopes.out + r * third, head.out + r * third, d)
        low, top = bounds(limits, i, i + rows)
        for k in range(0, top, KEYS):
            _block_back(m, head, slopes, i, rows, k, min(KEYS, top - k), low)
    for i in range(head.transitions, head.length):
        _itself(m, q, head, slopes, i)


@njit(**INNER)
def _block_back(m, head, slopes, i, rows, k, keys, low):  # type: ignore[no-untyped-def]
    """Add the gradients between rows i .. i + rows - 1 and transitions k .. k + keys - 1."""
    d, row, third, s, ds = head.width, head.row, head.row // 3, head.scores, slopes.scores
    query, out = head.query + i * row, slopes.out + i * third
    key = head.query + third + k * row
    d_query, d_key = slopes.query + i * row, slopes.query + third + k * row
    d_value, lanes, zero = d_key + third, head.lanes, head.zero
    product(m, keys, SIDE, d, key, row, 1, head.across + i, lanes, zero, 0, s, SIDE)
    product(m, keys, SIDE, d, key + third, row, 1, slopes.across + i, lanes, zero, 0, ds, SIDE)
    _scores_back(m, head, slopes, i, k, keys, low)
    product(m, rows, d, keys, ds, 1, SIDE, key, row, d_query, row, d_query, row)
    product(m, keys, d, rows, ds, SIDE, 1, query, row, d_key, row, d_key, row)
    product(m, keys, d, rows, s, SIDE, 1, out, third, d_value, row, d_value, row)


@njit(**INNER)
def _scores_back(m, head, slopes, i, k, keys, low):  # type: ignore[no-untyped-def]
    """Replace scores by probabilities, and gradients of probabilities by those of scores."""
    limit, delta = load(m, head.limits + i), load(m, slopes.deltas + i)
    best, share = load(m, head.highs + i), load(m, head.shares + i)
    s, ds = head.scores, slopes.scores
    for j in range(keys):
        at = j * SIDE
        probability = exp2(load(m, s + at) - best) * share
        if k + j >= low:
            probability = select_above(limit, np.float32(k + j), probability, _ZERO)
        store(m, s + at, probability)
        store(m, ds + at, (load(m, ds + at) - delta) * probability)


@njit(**INNER)
def _itself(m, q, head, slopes, i):  # type: ignore[no-untyped-def]
    """Add the gradients of the query in row i attending to itself."""
    third, at = head.row // 3, i * head.row
    d_out, query = slopes.out + i * third, head.query + at
    key, value, d_query = query + third, query + 2 * third, slopes.query + at
    share = q[head.own + i] * q[head.shares + i]
    slope = share * (dot(m, d_out, value, head.width) - q[slopes.deltas + i])
    for j in range(0, head.width, 16):
        to = d_query + j
        store(m, to, load(m, to) + load(m, key + j) * slope)
        to += third
        store(m, to, load(m, to) + load(m, query + j) * slope)
        to += third
        store(m, to, load(m, to) + load(m, d_out + j) * share)
