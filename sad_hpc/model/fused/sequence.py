"""One sequence through the model: forward, loss, backward.  Its activations stay in the cache.

Rows are T transitions, then K queries.  Where only queries answer, the last block makes nothing of
transitions but keys and values.
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
def _first_answer(plan, layer):  # type: ignore[no-untyped-def]  # pragma: no cover
    """The first row that this block has to bring to its end."""
    return plan.transitions if layer + 1 == plan.layers and not plan.stateless else 0


@njit(**INNER)
def _head(plan, layer, h):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Where head h of a layer reads and writes."""
    qkv, across, highs, shares, own, mixed = plan.saved[layer, 2:8]
    d, lanes = plan.d_pad, h * plan.lanes
    return Head(
        plan.transitions, plan.length, _first_answer(plan, layer), d, 3 * plan.heads * d,
        plan.lanes, qkv + h * d, mixed + h * d, across + d * lanes, plan.limits,
        highs + lanes, shares + lanes, own + lanes, plan.scores, plan.zero,
    )  # fmt: skip


@njit(**INNER)
def _clear(m, first, size):  # type: ignore[no-untyped-def]  # pragma: no cover
    for i in range(first, first + size, 16):
        store(m, i, splat(_ZERO))


@njit(**INNER)
def forward(m, q, plan, limits, keys, threshold, keep):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Tokens -> logits, for rows from `_first_answer` of the last layer on.

    Args:
        m: address of the memory, q: the same as an array.
        plan: of it.
        limits: (L,) transitions that each row sees.
        keys: of the sequence's random numbers.
        threshold: of 2^16: how many are dropped.
        keep: 2^16 / (2^16 - threshold); folded into the weights but for the first dropout.
    """
    e, d, t, length = plan.e, plan.d_pad, plan.transitions, plan.length
    width = plan.heads * d
    wide, x = 3 * width, plan.x
    product(
        m,
        t,
        e,
        plan.token,
        plan.tokens,
        plan.token,
        1,
        plan.embed_t,
        e,
        plan.positions + e,
        e,
        x,
        e,
    )
    product(
        m,
        length - t,
        e,
        plan.token,
        plan.tokens + t * plan.token,
        plan.token,
        1,
        plan.embed_t,
        e,
        plan.positions,
        0,
        x + t * e,
        e,
    )
    if threshold:
        dropout(m, 0, length, e, 0, keys, threshold, x, -1, keep, x)
    for layer in range(plan.layers):
        norm_1, scale_1, qkv = plan.saved[layer, :3]
        mixed, norm_2, scale_2, hidden, slopes = plan.saved[layer, 7:]
        qkv_t, _, qkv_b, out_t, _, out_b, up_t, _, up_b, down_t, _, down_b = plan.weights[layer]
        first = _first_answer(plan, layer)
        rows, at = length - first, x + first * e
        norm(m, q, length, e, x, norm_1, scale_1)
        product(m, length, wide, e, norm_1, e, 1, qkv_t, wide, qkv_b, 0, qkv, wide)
        for h in range(plan.heads):
            attend(m, q, _head(plan, layer, h), limits)
        product(m, rows, e, width, mixed + first * width, width, 1, out_t, e, out_b, 0, plan.d_y, e)
        dropout(
            m, first, rows, e, (1 + 2 * layer) * length, keys, threshold, plan.d_y, at, _ONE, at
        )
        norm(m, q, rows, e, at, norm_2, scale_2)
        product(m, rows, 4 * e, e, norm_2, e, 1, up_t, 4 * e, up_b, 0, hidden, 4 * e)
        gelu(m, rows * 4 * e, hidden, slopes)
        product(m, rows, e, 4 * e, hidden, 4 * e, 1, down_t, e, down_b, 0, plan.d_y, e)
        dropout(
            m, first, rows, e, (2 + 2 * layer) * length, keys, threshold, plan.d_y, at, _ONE, at
        )
    first, pad = _first_answer(plan, plan.layers - 1), plan.actions_pad
    norm(m, q, length - first, e, x + first * e, plan.norm, plan.scale)
    product(
        m,
        length - first,
        pad,
        e,
        plan.norm,
        e,
        1,
        plan.head_t,
        pad,
        plan.head_bias,
        0,
        plan.logits,
        pad,
    )


@njit(**INNER)
def loss(m, q, plan, labels, weights, share):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Sum of share x weight x negative log-likelihood of labels; logits become their gradients.

    Labels and weights are in the order of answers: where transitions answer, the query comes first.
    """
    result, pad = 0.0, plan.actions_pad
    for j in range(len(labels)):
        row = j
        if plan.stateless:
            row = j - 1 if j else plan.transitions
        at = plan.logits + row * pad
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
def backward(m, q, plan, limits, keys, threshold, keep, with_tokens):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Adds the gradients of one sequence to the plan's; see `forward`.

    Args:
        m, q, plan, limits, keys, threshold, keep: as there.
        with_tokens: make the gradients of tokens, too.
    """
    e, d, length = plan.e, plan.d_pad, plan.length
    width, zero = plan.heads * d, plan.zero
    wide, d_x, d_y, big, pad = 3 * width, plan.d_x, plan.d_y, plan.big, plan.actions_pad
    first = _first_answer(plan, plan.layers - 1)
    rows = length - first
    product(m, pad, e, rows, plan.logits, 1, pad, plan.norm, e, plan.g_head, e, plan.g_head, e)
    add_rows(m, rows, pad, plan.logits, plan.g_head_bias)
    product(m, rows, e, pad, plan.logits, pad, 1, plan.head, e, zero, 0, d_y, e)
    _clear(m, d_x, length * e)
    norm_back(m, q, rows, e, d_y, plan.norm, plan.scale, d_x + first * e)
    for back in range(plan.layers):
        layer = plan.layers - 1 - back
        norm_1, scale_1, _ = plan.saved[layer, :3]
        mixed, norm_2, scale_2, hidden, slopes = plan.saved[layer, 7:]
        _, w_qkv, _, _, w_out, _, _, w_up, _, _, w_down, _ = plan.weights[layer]
        g_qkv, g_qkv_b, g_out_t, g_out_b, g_up, g_up_b, g_down_t, g_down_b = plan.gradients[layer]
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
        d_mixed = plan.d_mixed
        product(m, rows, width, e, d_y, e, 1, w_out, width, zero, 0, d_mixed + first * width, width)
        _clear(m, big, length * wide)
        for h in range(plan.heads):
            to = Slopes(d_mixed + h * d, big + h * d, plan.d_across, plan.deltas, plan.d_scores)
            attend_back(m, q, _head(plan, layer, h), limits, to)
        add_rows(m, length, wide, big, g_qkv_b)
        product(m, wide, e, length, big, 1, wide, norm_1, e, g_qkv, e, g_qkv, e)
        product(m, length, e, wide, big, wide, 1, w_qkv, e, zero, 0, d_y, e)
        norm_back(m, q, length, e, d_y, norm_1, scale_1, d_x)
    _embed_back(m, q, plan, keys, threshold, keep, with_tokens)


@njit(**INNER)
def _embed_back(m, q, plan, keys, threshold, keep, with_tokens):  # type: ignore[no-untyped-def]  # pragma: no cover
    e, t, length, d_y = plan.e, plan.transitions, plan.length, plan.d_y
    dropout(m, 0, length, e, 0, keys, threshold, plan.d_x, -1, keep, d_y)
    for i in range(0, t * e, 16):
        at = plan.g_positions + e + i
        store(m, at, load(m, at) + load(m, d_y + i))
    add_rows(m, length - t, e, d_y + t * e, plan.g_positions)
    product(
        m,
        plan.token,
        e,
        length,
        plan.tokens,
        1,
        plan.token,
        d_y,
        e,
        plan.g_embed_t,
        e,
        plan.g_embed_t,
        e,
    )
    if with_tokens:
        product(
            m,
            length,
            plan.token_pad,
            e,
            d_y,
            e,
            1,
            plan.embed,
            plan.token_pad,
            plan.zero,
            0,
            plan.d_tokens,
            plan.token_pad,
        )
