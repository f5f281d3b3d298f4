"""Attention of one head, with the sequences of `Transformer`.

Row i of a sequence (T transitions, then K queries) attends to the first limits[i] transitions; a
query also attends to itself.  Scores are stored transposed, a row for each key and a lane for each
row of the sequence, so that maxima and sums run over whole vectors.  They are in units of log 2,
which is folded into the weights.
"""

from typing import NamedTuple

import numpy as np
from numba import njit

from sad_hpc.model.fused.products import INNER, product
from sad_hpc.model.fused.vectors import (
    exp2,
    larger,
    load,
    reciprocal,
    select_above,
    splat,
    store,
    total,
    transpose16,
)

SIDE = 16
"""Number of rows of a sequence in one block of scores: the lanes of a vector."""

_HIDDEN = np.float32(-1e30)
_ZERO = np.float32(0)


class Head(NamedTuple):
    """Sizes of a head, and offsets of its inputs and results."""

    transitions: int
    """T"""
    length: int
    """L = T + K"""
    first: int
    """First row whose result is needed."""
    width: int
    """D, a multiple of 16."""
    row: int
    """Distance in floats between rows of queries, keys and values."""
    lanes: int
    """L padded to whole vectors."""
    query: int
    """First query of the head; its keys and values are a third and two thirds of `row` later."""
    out: int
    """Result (L, D), with a third of `row` between its rows."""
    across: int
    """Transposed queries (D, lanes)."""
    limits: int
    """(lanes,) limits as floats; 0 after L."""
    highs: int
    """(lanes,) largest scores."""
    shares: int
    """(lanes,) 1 / sum of 2^(score - largest)."""
    own: int
    """(lanes,) 2^(score - largest) of queries for themselves; 0 for transitions."""
    scores: int
    """Buffer for T x SIDE scores."""
    zero: int
    """Zeros."""


@njit(**INNER)
def transposed(m, rows, width, source, source_row, target, target_row):  # type: ignore[no-untyped-def]
    """Transpose: memory[target + j target_row + i] = memory[source + i source_row + j], i < rows.

    Whole vectors are processed, so up to 15 additional rows are read and written.
    """
    for j in range(0, width, 16):
        for i in range(0, rows, 16):
            at, to = source + i * source_row + j, target + j * target_row + i
            transpose16(m, at, source_row, to, target_row)


@njit(**INNER)
def dot(m, a, b, width):  # type: ignore[no-untyped-def]
    """Return the inner product of two rows."""
    result = splat(_ZERO)
    for j in range(0, width, 16):
        result = result + load(m, a + j) * load(m, b + j)
    return total(result)


@njit(**INNER)
def bounds(limits, first, last):  # type: ignore[no-untyped-def]
    """Return the smallest and the largest limit of rows first .. last - 1."""
    low, top = limits[first], limits[first]
    for i in range(first + 1, last):
        low, top = min(low, limits[i]), max(top, limits[i])
    return low, top


@njit(**INNER)
def attend(m, q, head, limits):  # type: ignore[no-untyped-def]
    """Compute attention's results for rows head.first .. head.length - 1.

    Args:
        m: address of the memory.
        q: the memory as an array.
        head: sizes and offsets.
        limits: (L,) number of transitions that each row attends to.
    """
    first, d, row, s, third = head.first, head.width, head.row, head.scores, head.row // 3
    key, value = head.query + third, head.query + 2 * third
    start = head.query + first * row
    transposed(m, head.length - first, d, start, row, head.across + first, head.lanes)
    for i in range(first, head.length, SIDE):
        rows = min(SIDE, head.length - i)
        low, top = bounds(limits, i, i + rows)
        if top:
            across = head.across + i
            product(m, top, SIDE, d, key, row, 1, across, head.lanes, head.zero, 0, s, SIDE)
        store(m, head.own + i, splat(_HIDDEN))
        for r in range(max(i, head.transitions), i + rows):
            q[head.own + r] = dot(m, head.query + r * row, key + r * row, d)
        _softmax(m, head, i, s, low, top)
        to = head.out + i * third
        if top:
            product(m, rows, d, top, s, 1, SIDE, value, row, head.zero, 0, to, third)
        for r in range(i, i + rows):
            _mix(m, q, head, r, value + r * row, top > 0)


@njit(**INNER)
def _softmax(m, head, lane, s, low, top):  # type: ignore[no-untyped-def]
    """Replace scores of 16 rows by 2^(score - largest), or by 0 beyond a row's limit."""
    limit, own = load(m, head.limits + lane), load(m, head.own + lane)
    best = own
    for j in range(low):
        best = larger(best, load(m, s + j * SIDE))
    for j in range(low, top):
        best = larger(best, select_above(limit, np.float32(j), load(m, s + j * SIDE), _HIDDEN))
    own = exp2(own - best)
    mass, other = own, splat(_ZERO)
    for j in range(low):
        score = exp2(load(m, s + j * SIDE) - best)
        store(m, s + j * SIDE, score)
        mass, other = other, mass + score
    for j in range(low, top):
        score = exp2(load(m, s + j * SIDE) - best)
        score = select_above(limit, np.float32(j), score, _ZERO)
        store(m, s + j * SIDE, score)
        mass, other = other, mass + score
    store(m, head.own + lane, own)
    store(m, head.highs + lane, best)
    store(m, head.shares + lane, reciprocal(mass + other))


@njit(**INNER)
def _mix(m, q, head, i, value, others):  # type: ignore[no-untyped-def]
    """Finish row i of the result: add a query's own value, and normalize."""
    share, own, row = q[head.shares + i], q[head.own + i], head.out + i * (head.row // 3)
    for j in range(0, head.width, 16):
        mixed = splat(_ZERO)
        if others:
            mixed = load(m, row + j)
        if i >= head.transitions:
            mixed = mixed + load(m, value + j) * own
        store(m, row + j, mixed * share)
