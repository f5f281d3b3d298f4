"""Conversion of weights to the kernel's layout, once a step, and of gradients back.

The kernel has each matrix and its transpose.  A norm's scale and shift, the scale of attention's
scores, and dropout's factor are folded into the matrices, which saves passes over the rows.  Heads
are padded to whole vectors with weights of 0.
"""

import math

import numpy as np
from numba import njit

from sad_hpc.model.fused.products import INNER

_ONE, _LOG_2 = np.float32(1), np.float32(math.log(2))
LAYER_TENSORS = 12
"""Number of tensors of a layer: weights and biases of norm, qkv, projection, norm, up, down."""


@njit(**INNER)
def _fold(q, p, n, width, scale, shift, weight, bias, factor, back, to, to_t, to_row, to_bias):  # type: ignore[no-untyped-def]
    """Fold row n (E,) of a weight after a norm: write a row, a column, and its bias."""
    mass = p[bias]
    for e in range(width):
        value = p[weight + e]
        mass += value * p[shift + e]
        value *= p[scale + e]
        q[to + n * width + e] = value * back
        q[to_t + e * to_row + n] = value * factor
    q[to_bias + n] = mass * factor


@njit(**INNER)
def _unfold(q, p, o, n, width, scale, shift, weight, bias, factor, g, g_bias):  # type: ignore[no-untyped-def]
    """Add the gradients of row n of `_fold`."""
    slope = q[g_bias + n] * factor
    o[bias] += slope
    for e in range(width):
        each = q[g + n * width + e] * factor
        o[weight + e] += each * p[scale + e] + slope * p[shift + e]
        o[scale + e] += each * p[weight + e]
        o[shift + e] += slope * p[weight + e]


@njit(**INNER)
def _factors(part, width):  # type: ignore[no-untyped-def]
    """Return the factors of queries (part 0), keys (1) or values (2), and of their gradients.

    Scores are divided by sqrt(width) log 2; their gradients lack the log 2.
    """
    root = _ONE / np.float32(math.sqrt(width))
    if part == 0:
        return root / _LOG_2, root
    if part == 1:
        return _ONE, _LOG_2
    return _ONE, _ONE


@njit(**INNER)
def _places(head, j, width, padded):  # type: ignore[no-untyped-def]
    """Return the number of row j of a head, among padded heads and in the model."""
    return head * padded + j, head * width + j


@njit(**INNER)
def fold_weights(q, p, where, plan, keep):  # type: ignore[no-untyped-def]
    """Write the folded weights of the flat parameter into the memory.

    Args:
        q: the memory.
        p: all parameters of the model.
        where: offsets in p of embed (2), positions, the layers' (12 each), norm (2), head (2).
        plan: layout of the memory.
        keep: 1 / (1 - dropout).
    """
    sizes, weights = plan.sizes, plan.weights
    e, d, heads, width = sizes.e, sizes.d, sizes.heads, sizes.heads * sizes.d_pad
    for i in range(e):
        for k in range(sizes.token):
            value = p[where[0] + i * sizes.token + k]
            q[weights.embed + i * sizes.token_pad + k] = value
            q[weights.embed_t + k * e + i] = value
    for t in range((where[3] - where[2]) // e):
        for i in range(e):
            q[weights.positions + t * e + i] = p[where[2] + t * e + i] + p[where[1] + i]
    for layer in range(sizes.layers):
        c = where[3 + LAYER_TENSORS * layer :]
        offsets = weights.layers[layer]
        qkv_t, qkv, qkv_b, out_t, out, out_b, up_t, up, up_b, down_t, down, down_b = offsets
        for part in range(3):
            factor, back = _factors(part, d)
            for head in range(heads):
                for j in range(d):
                    n, source = _places(part * heads + head, j, d, sizes.d_pad)
                    _fold(
                        q, p, n, e, c[0], c[1], c[2] + source * e, c[3] + source, factor, back,
                        qkv, qkv_t, 3 * width, qkv_b,
                    )  # fmt: skip
        for n in range(4 * e):
            _fold(
                q, p, n, e, c[6], c[7], c[8] + n * e, c[9] + n, _ONE, _ONE,
                up, up_t, 4 * e, up_b,
            )  # fmt: skip
        for i in range(e):
            for head in range(heads):
                for j in range(d):
                    n, source = _places(head, j, d, sizes.d_pad)
                    value = p[c[4] + i * heads * d + source] * keep
                    q[out + i * width + n] = value
                    q[out_t + n * e + i] = value
            for n in range(4 * e):
                value = p[c[10] + i * 4 * e + n] * keep
                q[down + i * 4 * e + n] = value
                q[down_t + n * e + i] = value
            q[out_b + i] = p[c[5] + i] * keep
            q[down_b + i] = p[c[11] + i] * keep
    c = where[3 + LAYER_TENSORS * sizes.layers :]
    for n in range(sizes.actions_pad):
        if n < sizes.actions:
            _fold(
                q, p, n, e, c[0], c[1], c[2] + n * e, c[3] + n, _ONE, _ONE,
                weights.head, weights.head_t, sizes.actions_pad, weights.head_bias,
            )  # fmt: skip
        else:
            q[weights.head_bias + n] = np.float32(-1e30)


@njit(**INNER)
def unfold_gradients(q, p, o, where, plan, keep):  # type: ignore[no-untyped-def]
    """Add the gradients with respect to the flat parameter to o; see `fold_weights`."""
    sizes, gradients = plan.sizes, plan.gradients
    e, d, heads = sizes.e, sizes.d, sizes.heads
    for i in range(e):
        for k in range(sizes.token):
            o[where[0] + i * sizes.token + k] += q[gradients.embed_t + k * e + i]
    for t in range((where[3] - where[2]) // e):
        for i in range(e):
            value = q[gradients.positions + t * e + i]
            o[where[2] + t * e + i] += value
            o[where[1] + i] += value
    for layer in range(sizes.layers):
        c = where[3 + LAYER_TENSORS * layer :]
        qkv, qkv_b, out_t, out_b, up, up_b, down_t, down_b = gradients.layers[layer]
        for part in range(3):
            _, back = _factors(part, d)
            for head in range(heads):
                for j in range(d):
                    n, source = _places(part * heads + head, j, d, sizes.d_pad)
                    _unfold(
                        q, p, o, n, e, c[0], c[1], c[2] + source * e, c[3] + source, back,
                        qkv, qkv_b,
                    )  # fmt: skip
        for n in range(4 * e):
            _unfold(q, p, o, n, e, c[6], c[7], c[8] + n * e, c[9] + n, _ONE, up, up_b)
        for i in range(e):
            for head in range(heads):
                for j in range(d):
                    n, source = _places(head, j, d, sizes.d_pad)
                    o[c[4] + i * heads * d + source] += q[out_t + n * e + i] * keep
            for n in range(4 * e):
                o[c[10] + i * 4 * e + n] += q[down_t + n * e + i] * keep
            o[c[5] + i] += q[out_b + i] * keep
            o[c[11] + i] += q[down_b + i] * keep
    c = where[3 + LAYER_TENSORS * sizes.layers :]
    for n in range(sizes.actions):
        _unfold(
            q, p, o, n, e, c[0], c[1], c[2] + n * e, c[3] + n, _ONE,
            gradients.head, gradients.head_bias,
        )  # fmt: skip
