"""Forward pass, loss and backward pass of one sequence, whose activations stay in the cache.

Rows are T transitions, then K queries.  If only queries answer, the last block computes only keys
and values of transitions.
"""

import math

import numpy as np
from numba import njit

from sad_hpc.model.fused.attention import Head, attend
from sad_hpc.model.fused.attention_back import Slopes, attend_back
from sad_hpc.model.fused.products import INNER, product
from sad_hpc.model.fused.rowwise import add_rows, dropout, gelu, norm, norm_back, times
from sad_hpc.model.fused.vectors import exp2, highest, larger, load, splat, store, total

_ZERO, _ONE, _PER_LOG_2 = np.float32(0), np.float32(1), np.float32(1 / math.log(2))


@njit(**INNER)
def _first_answer(plan, layer):  # type: ignore[no-untyped-def]
    """Return the first row whose output of this layer is needed."""
    sizes = plan.sizes
    return sizes.transitions if layer + 1 == sizes.layers and not sizes.stateless else 0


@njit(**INNER)
def _head(plan, layer, h, first):  # type: ignore[no-untyped-def]
    """Return the sizes and offsets of head h of a layer, for rows from `first` on."""
    sizes, work = plan.sizes, plan.work
    qkv, across, highs, shares, own, mixed = work.saved[layer, 2:8]
    d, lanes = sizes.d_pad, h * sizes.lanes
    return Head(
        sizes.transitions, sizes.length, first, d, 3 * sizes.heads * d,
        sizes.lanes, qkv + h * d, mixed + h * d, across + d * lanes, work.limits,
        highs + lanes, shares + lanes, own + lanes, work.scores, plan.zero,
    )  # fmt: skip


@njit(**INNER)
def _clear(m, first, size):  # type: ignore[no-untyped-def]
    for i in range(first, first + size, 16):
        store(m, i, splat(_ZERO))


@njit(**INNER)
def forward(m, q, plan, begin, limits, keys, threshold, keep):  # type: ignore[no-untyped-def]
    """Compute the logits of rows from `_first_answer` of the last layer on.

    Args:
        m: address of the memory.
        q: the memory as an array.
        plan: layout of the memory.
        begin: 0, or T if the memory holds the keys and values of the transitions.
        limits: (L,) number of transitions that each row attends to.
        keys: keys of the sequence's random numbers.
        threshold: dropout probability in units of 2^-16.
        keep: 2^16 / (2^16 - threshold), folded into the weights except at the first dropout.
    """
    sizes, weights, work = plan.sizes, plan.weights, plan.work
    e, d, t, length = sizes.e, sizes.d_pad, sizes.transitions, sizes.length
    width = sizes.heads * d
    wide, x = 3 * width, work.x
    product(
        m, t - begin, e, sizes.token, work.tokens, sizes.token, 1, weights.embed_t, e,
        weights.positions + e, e, x, e,
    )  # fmt: skip
    product(
        m, length - t, e, sizes.token, work.tokens + t * sizes.token, sizes.token, 1,
        weights.embed_t, e, weights.positions, 0, x + t * e, e,
    )  # fmt: skip
    if threshold:
        dropout(m, 0, length, e, 0, keys, threshold, x, -1, keep, x)
    for layer in range(sizes.layers):
        norm_1, scale_1, qkv = work.saved[layer, :3]
        mixed, norm_2, scale_2, hidden, slopes = work.saved[layer, 7:]
        qkv_t, _, qkv_b, out_t, _, out_b, up_t, _, up_b, down_t, _, down_b = weights.layers[layer]
        first = max(begin, _first_answer(plan, layer))
        rows, at = length - first, x + first * e
        new, at_new = length - begin, norm_1 + begin * e
        norm(m, q, new, e, x + begin * e, at_new, scale_1 + begin)
        product(m, new, wide, e, at_new, e, 1, qkv_t, wide, qkv_b, 0, qkv + begin * wide, wide)
        for h in range(sizes.heads):
            attend(m, q, _head(plan, layer, h, first), limits)
        product(m, rows, e, width, mixed + first * width, width, 1, out_t, e, out_b, 0, work.d_y, e)
        dropout(
            m, first, rows, e, (1 + 2 * layer) * length, keys, threshold, work.d_y, at, _ONE, at
        )
        norm(m, q, rows, e, at, norm_2, scale_2)
        product(m, rows, 4 * e, e, norm_2, e, 1, up_t, 4 * e, up_b, 0, hidden, 4 * e)
        gelu(m, rows * 4 * e, hidden, slopes)
        product(m, rows, e, 4 * e, hidden, 4 * e, 1, down_t, e, down_b, 0, work.d_y, e)
        dropout(
            m, first, rows, e, (2 + 2 * layer) * length, keys, threshold, work.d_y, at, _ONE, at
        )
    first, pad = _first_answer(plan, sizes.layers - 1), sizes.actions_pad
    norm(m, q, length - first, e, x + first * e, work.norm, work.scale)
    product(
        m, length - first, pad, e, work.norm, e, 1, weights.head_t, pad, weights.head_bias, 0,
        work.logits, pad,
    )  # fmt: skip


@njit(**INNER)
def loss(m, q, plan, labels, weights, share):  # type: ignore[no-untyped-def]
    """Return the sum of share x weight x negative log-likelihood, and replace logits by gradients.

    Labels and weights are in the order of answers; for stateless families the query is first.
    """
    sizes, work = plan.sizes, plan.work
    result, pad = 0.0, sizes.actions_pad
    for j in range(len(labels)):
        row = j
        if sizes.stateless:
            row = j - 1 if j else sizes.transitions
        at = work.logits + row * pad
        best = load(m, at)
        for n in range(16, pad, 16):
            best = larger(best, load(m, at + n))
        high = highest(best)
        mass = splat(_ZERO)
        for n in range(0, pad, 16):
            each = exp2((load(m, at + n) - high) * _PER_LOG_2)
            mass = mass + each
        every, weight = total(mass), share * weights[j]
        result += weight * (math.log(every) + high - q[at + labels[j]])
        for n in range(0, pad, 16):
            store(m, at + n, exp2((load(m, at + n) - high) * _PER_LOG_2) * (weight / every))
        q[at + labels[j]] -= weight
    return result


@njit(**INNER)
def backward(m, q, plan, limits, keys, threshold, keep, with_tokens):  # type: ignore[no-untyped-def]
    """Add the gradients of one sequence to the gradients in memory; see `forward`.

    Args:
        m, q, plan, limits, keys, threshold, keep: see `forward`.
        with_tokens: whether to compute the gradients of tokens, too.
    """
    sizes, weights, gradients, work = plan.sizes, plan.weights, plan.gradients, plan.work
    e, d, length = sizes.e, sizes.d_pad, sizes.length
    width, zero = sizes.heads * d, plan.zero
    wide, d_x, d_y, big, pad = 3 * width, work.d_x, work.d_y, work.big, sizes.actions_pad
    first = _first_answer(plan, sizes.layers - 1)
    rows = length - first
    product(
        m, pad, e, rows, work.logits, 1, pad, work.norm, e, gradients.head, e, gradients.head, e
    )
    add_rows(m, rows, pad, work.logits, gradients.head_bias)
    product(m, rows, e, pad, work.logits, pad, 1, weights.head, e, zero, 0, d_y, e)
    _clear(m, d_x, length * e)
    norm_back(m, q, rows, e, d_y, work.norm, work.scale, d_x + first * e)
    for back in range(sizes.layers):
        layer = sizes.layers - 1 - back
        norm_1, scale_1, _ = work.saved[layer, :3]
        mixed, norm_2, scale_2, hidden, slopes = work.saved[layer, 7:]
        _, w_qkv, _, _, w_out, _, _, w_up, _, _, w_down, _ = weights.layers[layer]
        g_qkv, g_qkv_b, g_out_t, g_out_b, g_up, g_up_b, g_down_t, g_down_b = gradients.layers[layer]
        first = _first_answer(plan, layer)
        rows, at = length - first, d_x + first * e
        dropout(m, first, rows, e, (2 + 2 * layer) * length, keys, threshold, at, -1, _ONE, d_y)
        add_rows(m, rows, e, d_y, g_down_b)
        product(m, 4 * e, e, rows, hidden, 1, 4 * e, d_y, e, g_down_t, e, g_down_t, e)
        product(m, rows, 4 * e, e, d_y, e, 1, w_down, 4 * e, zero, 0, big, 4 * e)
        times(m, rows * 4 * e, big, slopes)
        add_rows(m, rows, 4 * e, big, g_up_b)
        product(m, 4 * e, e, rows, big, 1, 4 * e, norm_2, e, g_up, e, g_up, e)
        product(m, rows, e, 4 * e, big, 4 * e, 1, w_up, e, zero, 0, d_y, e)
        norm_back(m, q, rows, e, d_y, norm_2, scale_2, at)
        dropout(m, first, rows, e, (1 + 2 * layer) * length, keys, threshold, at, -1, _ONE, d_y)
        add_rows(m, rows, e, d_y, g_out_b)
        product(m, width, e, rows, mixed + first * width, 1, width, d_y, e, g_out_t, e, g_out_t, e)
        d_mixed = work.d_mixed
        product(m, rows, width, e, d_y, e, 1, w_out, width, zero, 0, d_mixed + first * width, width)
        _clear(m, big, length * wide)
        for h in range(sizes.heads):
            to = Slopes(d_mixed + h * d, big + h * d, work.d_across, work.deltas, work.d_scores)
            attend_back(m, q, _head(plan, layer, h, first), limits, to)
        add_rows(m, length, wide, big, g_qkv_b)
        product(m, wide, e, length, big, 1, wide, norm_1, e, g_qkv, e, g_qkv, e)
        product(m, length, e, wide, big, wide, 1, w_qkv, e, zero, 0, d_y, e)
        norm_back(m, q, length, e, d_y, norm_1, scale_1, d_x)
    _embed_back(m, q, plan, keys, threshold, keep, with_tokens)


@njit(**INNER)
def _embed_back(m, q, plan, keys, threshold, keep, with_tokens):  # type: ignore[no-untyped-def]
    sizes, weights, gradients, work = plan.sizes, plan.weights, plan.gradients, plan.work
    e, t, length, d_y = sizes.e, sizes.transitions, sizes.length, work.d_y
    dropout(m, 0, length, e, 0, keys, threshold, work.d_x, -1, keep, d_y)
    for i in range(0, t * e, 16):
        at = gradients.positions + e + i
        store(m, at, load(m, at) + load(m, d_y + i))
    add_rows(m, length - t, e, d_y + t * e, gradients.positions)
    product(
        m, sizes.token, e, length, work.tokens, 1, sizes.token, d_y, e, gradients.embed_t, e,
        gradients.embed_t, e,
    )  # fmt: skip
    if with_tokens:
        product(
            m, length, sizes.token_pad, e, d_y, e, 1, weights.embed, sizes.token_pad, plan.zero, 0,
            work.d_tokens, sizes.token_pad,
        )  # fmt: skip
