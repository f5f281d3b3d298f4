"""Operations on rows: layer norms, GELU, dropout, sums over rows.

A layer norm has no scale and shift here, because they are folded into the following weights.
"""

import math

import numpy as np
from numba import njit

from sad_hpc.model.fused.products import INNER
from sad_hpc.model.fused.vectors import (
    exp2,
    keep_high,
    keep_low,
    load,
    random_bits,
    reciprocal,
    smaller,
    splat,
    store,
    total,
)

_ZERO, _ONE = np.float32(0), np.float32(1)
_EPSILON = np.float32(1e-5)
_LINEAR = np.float32(math.sqrt(8 / math.pi))
_CUBIC = np.float32(0.044715 * math.sqrt(8 / math.pi))
_PER_LOG_2 = np.float32(1 / math.log(2))
_LARGE = np.float32(100)


@njit(**INNER)
def norm(m, q, rows, width, x, out, scales):  # type: ignore[no-untyped-def]
    """Normalize rows to mean 0 and variance 1, and store the scales."""
    share = _ONE / np.float32(width)
    for t in range(rows):
        at, to = x + t * width, out + t * width
        mass = splat(_ZERO)
        for n in range(0, width, 16):
            mass = mass + load(m, at + n)
        mean = total(mass) * share
        squares = splat(_ZERO)
        for n in range(0, width, 16):
            centered = load(m, at + n) - mean
            squares = squares + centered * centered
        scale = _ONE / np.float32(math.sqrt(total(squares) * share + _EPSILON))
        q[scales + t] = scale
        for n in range(0, width, 16):
            store(m, to + n, (load(m, at + n) - mean) * scale)


@njit(**INNER)
def norm_back(m, q, rows, width, d_out, out, scales, d_x):  # type: ignore[no-untyped-def]
    """Add the gradient of a norm's input to `d_x`."""
    share = _ONE / np.float32(width)
    for t in range(rows):
        row = t * width
        mass, product = splat(_ZERO), splat(_ZERO)
        for n in range(row, row + width, 16):
            slope = load(m, d_out + n)
            mass = mass + slope
            product = product + slope * load(m, out + n)
        mean, along, scale = total(mass) * share, total(product) * share, q[scales + t]
        for n in range(row, row + width, 16):
            slope = (load(m, d_out + n) - mean - load(m, out + n) * along) * scale
            store(m, d_x + n, load(m, d_x + n) + slope)


@njit(**INNER)
def gelu(m, size, x, slope):  # type: ignore[no-untyped-def]
    """Compute GPT-2's GELU (by tanh) of `size` numbers in place, and its derivatives."""
    for i in range(0, size, 16):
        u = load(m, x + i)
        square = u * u
        power = u * ((square * _CUBIC + _LINEAR) * -_PER_LOG_2)
        # At most 2^100, so that the reciprocal is not 0.
        share = reciprocal(exp2(smaller(power, splat(_LARGE))) + _ONE)
        result = u * share
        store(m, x + i, result)
        inner = square * (np.float32(3) * _CUBIC) + _LINEAR
        store(m, slope + i, share + result * (splat(_ONE) - share) * inner)


@njit(**INNER)
def dropout(m, first, rows, width, place, keys, threshold, x, base, factor, out):  # type: ignore[no-untyped-def]
    """Compute out = base + factor x dropout(x) for some rows.

    Args:
        m: address of the memory.
        first: number of the first row, for the random numbers.
        rows: number of rows.
        width: E.
        place: number of rows before this layer's, for the random numbers.
        keys: two words derived from seed, step, rank and sequence.
        threshold: dropout probability in units of 2^-16.
        x: offset of the input.
        base: offset of the summand; -1: none.
        factor: factor of kept numbers.
        out: offset of the result; it can be x.
    """
    pairs = (width + 31) // 32
    for t in range(rows):
        for pair in range(pairs):
            at = t * width + 32 * pair
            low = load(m, x + at)
            wide = 32 * pair + 16 < width
            high = low
            if wide:
                high = load(m, x + at + 16)
            if threshold:
                bits = random_bits((place + first + t) * pairs + pair, keys[0], keys[1])
                low = keep_low(low, bits, threshold)
                high = keep_high(high, bits, threshold)
            low, high = low * factor, high * factor
            if base >= 0:
                low = low + load(m, base + at)
                if wide:
                    high = high + load(m, base + at + 16)
            store(m, out + at, low)
            if wide:
                store(m, out + at + 16, high)


@njit(**INNER)
def add_rows(m, rows, width, x, out):  # type: ignore[no-untyped-def]
    """Add sums over rows: out[j] += sum over i of x[i, j]."""
    for j in range(0, width, 16):
        mass, other = load(m, out + j), splat(_ZERO)
        t = 0
        while t + 1 < rows:
            mass = mass + load(m, x + t * width + j)
            other = other + load(m, x + (t + 1) * width + j)
            t += 2
        if t < rows:
            mass = mass + load(m, x + t * width + j)
        store(m, out + j, mass + other)


@njit(**INNER)
def times(m, size, x, factors):  # type: ignore[no-untyped-def]
    """Multiply `size` numbers in place: x[i] *= factors[i]."""
    for i in range(0, size, 16):
        store(m, x + i, load(m, x + i) * load(m, factors + i))
