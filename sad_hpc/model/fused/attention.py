"""Attention of one head in the layout of `Transformer`, forward and backward.

Row i of a sequence (T transitions, then K queries) sees the first limits[i] transitions; a query
also sees itself.  Scores are made transposed, a row of a block for each key and a lane for each
query, so that maxima and sums run over whole vectors; they are not kept, but made again in
backward.  What belongs to rows lies in columns: that of a transition is its row, that of query k is
T rounded up to a multiple of 16, plus k.
"""

from typing import NamedTuple

import numpy as np
from numba import njit

from sad_hpc.model.fused.products import INNER, product
from sad_hpc.model.fused.vectors import (
    exp,
    larger,
    load,
    select_above,
    splat,
    store,
    total,
    transpose16,
)

SIDE = 32
"""Columns of a block of scores."""

KEYS = 128
"""Rows of a block of scores in backward: it stays in the first cache."""

_HIDDEN = np.float32(-1e30)
_ZERO, _ONE = np.float32(0), np.float32(1)


class Head(NamedTuple):
    """Sizes, and offsets of what a head reads and writes."""

    transitions: int
    """T"""
    length: int
    """L = T + K"""
    first: int
    """Rows before it are not needed; 0 or T."""
    width: int
    """D, a multiple of 16."""
    row: int
    """Floats between rows of queries, keys and values."""
    columns: int
    query_columns: int
    """The first column of a query."""
    query: int
    """The head's first query; its keys and values are a third and two thirds of a row later."""
    out: int
    """Result (L, D), a third of `row` between its rows."""
    across: int
    """Queries transposed (D, columns)."""
    limits: int
    """(columns,) as floats; 0 where there is no row."""
    highs: int
    """(columns,) largest scores."""
    shares: int
    """(columns,) 1 / sum of exp(score - largest)."""
    own: int
    """(columns,) scores of queries with themselves."""
    scores: int
    """Room for T x SIDE."""
    zero: int
    """Zeros."""


@njit(**INNER)
def transposed(m, rows, width, source, source_row, target, target_row):  # type: ignore[no-untyped-def]  # pragma: no cover
    """memory[target + j target_row + i] = memory[source + i source_row + j], all i < rows.

    Whole vectors: up to 15 rows more are read and written.
    """
    for j in range(0, width, 16):
        for i in range(0, rows, 16):
            transpose16(
                m, source + i * source_row + j, source_row, target + j * target_row + i, target_row
            )


@njit(**INNER)
def dot(m, a, b, width):  # type: ignore[no-untyped-def]  # pragma: no cover
    """The inner product of two rows."""
    result = splat(_ZERO)
    for j in range(0, width, 16):
        result = result + load(m, a + j) * load(m, b + j)
    return total(result)


@njit(**INNER)
def _bounds(limits, first, last):  # type: ignore[no-untyped-def]  # pragma: no cover
    """The smallest and the largest limit of rows first .. last - 1."""
    low, top = limits[first], limits[first]
    for i in range(first + 1, last):
        low, top = min(low, limits[i]), max(top, limits[i])
    return low, top


@njit(**INNER)
def attend(m, q, head, limits):  # type: ignore[no-untyped-def]  # pragma: no cover
    """What rows head.first .. head.length - 1 mix; m is the memory's address, q its array."""
    t, d, row = head.transitions, head.width, head.row
    if head.first == 0:
        transposed(m, t, d, head.query, row, head.across, head.columns)
        _attend_rows(m, q, head, limits, 0, t, 0, False)
    at = head.across + head.query_columns
    transposed(m, head.length - t, d, head.query + t * row, row, at, head.columns)
    _attend_rows(m, q, head, limits, t, head.length, head.query_columns, True)


@njit(**INNER)
def _attend_rows(m, q, head, limits, begin, end, column, see_themselves):  # type: ignore[no-untyped-def]  # pragma: no cover
    """The same for transitions or queries: rows begin .. end - 1, from this column on."""
    d, row, s, third = head.width, head.row, head.scores, head.row // 3
    key, value = head.query + third, head.query + 2 * third
    for i in range(begin, end, SIDE):
        rows, c = min(SIDE, end - i), column + i - begin
        low, top = _bounds(limits, i, i + rows)
        vectors = (rows + 15) // 16
        if top:
            product(
                m,
                top,
                16 * vectors,
                d,
                key,
                row,
                1,
                head.across + c,
                head.columns,
                head.zero,
                0,
                s,
                SIDE,
            )
        for r in range(rows):
            q[head.own + c + r] = _HIDDEN
            if see_themselves:
                at = (i + r) * row
                q[head.own + c + r] = dot(m, head.query + at, key + at, d)
        for v in range(vectors):
            _softmax(m, head, c + 16 * v, s + 16 * v, low, top)
        if top:
            product(
                m, rows, d, top, s, 1, SIDE, value, row, head.zero, 0, head.out + i * third, third
            )
        for r in range(rows):
            share, own = q[head.shares + c + r], q[head.own + c + r]
            for j in range(0, d, 16):
                at = head.out + (i + r) * third + j
                mixed = splat(_ZERO)
                if top:
                    mixed = load(m, at)
                if see_themselves:
                    mixed = mixed + load(m, value + (i + r) * row + j) * own
                store(m, at, mixed * share)


@njit(**INNER)
def _softmax(m, head, c, s, low, top):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Scores of 16 columns -> exp(score - largest); those of what they do not see -> 0."""
    limit, own = load(m, head.limits + c), load(m, head.own + c)
    best = own
    for j in range(low):
        best = larger(best, load(m, s + j * SIDE))
    for j in range(low, top):
        best = larger(best, select_above(limit, np.float32(j), load(m, s + j * SIDE), _HIDDEN))
    own = exp(own - best)
    mass, other = own, splat(_ZERO)
    for j in range(low):
        score = exp(load(m, s + j * SIDE) - best)
        store(m, s + j * SIDE, score)
        mass, other = other, mass + score
    for j in range(low, top):
        score = exp(load(m, s + j * SIDE) - best)
        score = select_above(limit, np.float32(j), score, _ZERO)
        store(m, s + j * SIDE, score)
        mass, other = other, mass + score
    store(m, head.own + c, own)
    store(m, head.highs + c, best)
    store(m, head.shares + c, splat(_ONE) / (mass + other))


@njit(**INNER)
def attend_back(m, q, head, limits, slopes):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Adds the gradients of a head's keys and values, and writes those of queries; see `Slopes`."""
    t, d, third = head.transitions, head.width, head.row // 3
    if head.first == 0:
        transposed(m, t, d, slopes.out, third, slopes.across, head.columns)
        _attend_rows_back(m, q, head, limits, slopes, 0, t, 0)
    at = slopes.across + head.query_columns
    transposed(m, head.length - t, d, slopes.out + t * third, third, at, head.columns)
    _attend_rows_back(m, q, head, limits, slopes, t, head.length, head.query_columns)
    for k in range(head.length - t):
        _itself(m, q, head, slopes, t + k, head.query_columns + k)


class Slopes(NamedTuple):
    """Offsets of the gradients of a head."""

    out: int
    """Of the result (L, D), a third of a row between its rows."""
    query: int
    """Of the first query, in rows as those of queries, keys and values; zeros at first."""
    across: int
    """Room for gradients of the result, transposed (D, columns)."""
    deltas: int
    """(columns,) inner products of the result and its gradient."""
    scores: int
    """Room for KEYS x SIDE."""


@njit(**INNER)
def _attend_rows_back(m, q, head, limits, slopes, begin, end, column):  # type: ignore[no-untyped-def]  # pragma: no cover
    d, row, third, s, ds = head.width, head.row, head.row // 3, head.scores, slopes.scores
    key, value = head.query + third, head.query + 2 * third
    d_key, d_value = slopes.query + third, slopes.query + 2 * third
    for i in range(begin, end, SIDE):
        rows, c = min(SIDE, end - i), column + i - begin
        vectors = (rows + 15) // 16
        for r in range(i, i + rows):
            q[slopes.deltas + c + r - i] = dot(m, slopes.out + r * third, head.out + r * third, d)
        low, top = _bounds(limits, i, i + rows)
        for k in range(0, top, KEYS):
            keys, at = min(KEYS, top - k), k * row
            product(
                m,
                keys,
                16 * vectors,
                d,
                key + at,
                row,
                1,
                head.across + c,
                head.columns,
                head.zero,
                0,
                s,
                SIDE,
            )
            product(
                m,
                keys,
                16 * vectors,
                d,
                value + at,
                row,
                1,
                slopes.across + c,
                head.columns,
                head.zero,
                0,
                ds,
                SIDE,
            )
            for v in range(vectors):
                _scores_back(
                    m, head, slopes.deltas, c + 16 * v, k, keys, s + 16 * v, ds + 16 * v, low
                )
            x, to, d_out = head.query + i * row, slopes.query + i * row, slopes.out + i * third
            product(m, rows, d, keys, ds, 1, SIDE, key + at, row, to, row, to, row)
            product(m, keys, d, rows, ds, SIDE, 1, x, row, d_key + at, row, d_key + at, row)
            product(
                m, keys, d, rows, s, SIDE, 1, d_out, third, d_value + at, row, d_value + at, row
            )


@njit(**INNER)
def _scores_back(m, head, deltas, c, k, keys, s, ds, low):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Scores -> probabilities, and the gradients of those -> gradients of scores; 16 columns."""
    limit, delta = load(m, head.limits + c), load(m, deltas + c)
    best, share = load(m, head.highs + c), load(m, head.shares + c)
    for j in range(0, keys):
        at = j * SIDE
        probability = exp(load(m, s + at) - best) * share
        if k + j >= low:
            probability = select_above(limit, np.float32(k + j), probability, _ZERO)
        store(m, s + at, probability)
        store(m, ds + at, (load(m, ds + at) - delta) * probability)


@njit(**INNER)
def _itself(m, q, head, slopes, i, c):  # type: ignore[no-untyped-def]  # pragma: no cover
    """What the query in row i and column c owes to seeing itself."""
    third, at = head.row // 3, i * head.row
    d_out, query = slopes.out + i * third, head.query + at
    key, value, d_query = query + third, query + 2 * third, slopes.query + at
    share = q[head.own + c] * q[head.shares + c]
    slope = share * (dot(m, d_out, value, head.width) - q[slopes.deltas + c])
    for j in range(0, head.width, 16):
        to = d_query + j
        store(m, to, load(m, to) + load(m, key + j) * slope)
        to += third
        store(m, to, load(m, to) + load(m, query + j) * slope)
        to += third
        store(m, to, load(m, to) + load(m, d_out + j) * share)
