"""Batches in the kernel: the loss with all gradients, or the answers only."""

import numpy as np
from numba import njit

from sad_hpc.kernels import compilation  # noqa: F401 (first: it sets the cache folder)
from sad_hpc.model.fused.products import INNER
from sad_hpc.model.fused.sequence import backward, forward, loss
from sad_hpc.model.fused.weights import fold_weights, unfold_gradients


@njit(error_model="numpy", cache=True, nogil=True)
def train_batch(  # type: ignore[no-untyped-def]
    p,
    o,
    where,
    plan,
    tokens,
    query_tokens,
    prefixes,
    labels,
    weights,
    dropout,
    keys,
    q,
    d_tokens,
    d_query_tokens,
):
    """Return the mean loss of a batch, add its gradients to o, and write those of tokens.

    Args:
        p, o: flat parameters and their gradients.
        where: offsets in p; see `fold_weights`.
        plan: layout of the memory, for T and K.
        tokens: (B, T, width) float32.
        query_tokens: (B, K, width) float32.
        prefixes: (B, K) int64.
        labels: (B, R) int64; R = K, or T + 1 for stateless families.
        weights: (B, R) float32.
        dropout: dropout probability.
        keys: two words derived from seed, step and rank.
        q: the memory, (plan.size,) float32, initially zeros.
        d_tokens: result with the shape of tokens; empty: not computed.
        d_query_tokens: result with the shape of query_tokens; empty: not computed.
    """
    sizes, gradients = plan.sizes, plan.gradients
    threshold = np.int64(np.round(dropout * 65536))
    keep = np.float32(65536 / (65536 - threshold))
    m = np.int64(q.ctypes.data)  # the address of q, for vector instructions
    fold_weights(q, p, where, plan, keep)
    for i in range(gradients.first, gradients.last):
        q[i] = 0
    n_batch, n_answers = labels.shape
    share, with_tokens = np.float32(1 / (n_batch * n_answers)), d_query_tokens.size > 0
    limits, row_keys = np.arange(1, sizes.length + 1), np.empty(2, np.int64)
    t, result = sizes.transitions, 0.0
    for b in range(n_batch):
        for k in range(sizes.queries):
            limits[t + k] = prefixes[b, k]
        _read(q, plan, tokens[b], query_tokens[b], 0, limits)
        row_keys[0], row_keys[1] = keys[0] + b * 0x9E3779B9, keys[1]
        forward(m, q, plan, 0, limits, row_keys, threshold, keep)
        result += loss(m, q, plan, labels[b], weights[b], share)
        backward(m, q, plan, limits, row_keys, threshold, keep, with_tokens)
        if with_tokens:
            _write(q, plan, d_tokens[b], d_query_tokens[b])
    unfold_gradients(q, p, o, where, plan, keep)
    return result


@njit(error_model="numpy", cache=True, nogil=True)
def answer_batch(p, where, plan, tokens, query_tokens, prefixes, q, logits):  # type: ignore[no-untyped-def]
    """Write the answers of a batch, without dropout.

    Args:
        p, where, plan, tokens, query_tokens, prefixes, q: see `train_batch`.
        logits: the result, (B, R, A) float32.
    """
    sizes = plan.sizes
    m = np.int64(q.ctypes.data)
    fold_weights(q, p, where, plan, np.float32(1))
    limits, keys = np.arange(1, sizes.length + 1), np.zeros(2, np.int64)
    for b in range(len(tokens)):
        for k in range(sizes.queries):
            limits[sizes.transitions + k] = prefixes[b, k]
        _read(q, plan, tokens[b], query_tokens[b], 0, limits)
        forward(m, q, plan, 0, limits, keys, 0, np.float32(1))
        _answers(q, plan, logits[b])


@njit(error_model="numpy", cache=True, nogil=True)
def hold_batch(p, where, plan, tokens, q, held):  # type: ignore[no-untyped-def]
    """Write what `answer_held` needs of each context: queries, keys and values of all layers.

    Args:
        p, where, plan, tokens, q: see `train_batch`; the plan is for one query.
        held: the result, (B, layers, T 3 H D) float32.
    """
    sizes, work = plan.sizes, plan.work
    m = np.int64(q.ctypes.data)
    fold_weights(q, p, where, plan, np.float32(1))
    limits, keys = np.arange(1, sizes.length + 1), np.zeros(2, np.int64)
    query = np.zeros((1, sizes.token), np.float32)
    for b in range(len(tokens)):
        _read(q, plan, tokens[b], query, 0, limits)
        forward(m, q, plan, 0, limits, keys, 0, np.float32(1))
        for layer in range(sizes.layers):
            at = work.saved[layer, 2]
            held[b, layer] = q[at : at + held.shape[2]]


@njit(error_model="numpy", cache=True, nogil=True)
def answer_held(p, where, plan, held, rows, query_tokens, q, logits):  # type: ignore[no-untyped-def]
    """Write the answers to queries after whole contexts that `hold_batch` has computed.

    Args:
        p, where, plan, query_tokens, q: see `train_batch`.
        held: see `hold_batch`.
        rows: (B,), the context of each sequence.
        logits: the result, (B, K, A) float32.
    """
    sizes, work = plan.sizes, plan.work
    m, t = np.int64(q.ctypes.data), sizes.transitions
    fold_weights(q, p, where, plan, np.float32(1))
    limits, keys = np.full(sizes.length, t), np.zeros(2, np.int64)
    for b in range(len(rows)):
        for layer in range(sizes.layers):
            at = work.saved[layer, 2]
            q[at : at + held.shape[2]] = held[rows[b], layer]
        _read(q, plan, query_tokens[b], query_tokens[b], t, limits)
        forward(m, q, plan, t, limits, keys, 0, np.float32(1))
        _answers(q, plan, logits[b])


@njit(**INNER)
def _answers(q, plan, logits):  # type: ignore[no-untyped-def]
    """Copy a sequence's logits (R, A) out of the memory."""
    sizes, work = plan.sizes, plan.work
    for j in range(len(logits)):
        row = j
        if sizes.stateless:
            row = j - 1 if j else sizes.transitions
        for n in range(sizes.actions):
            logits[j, n] = q[work.logits + row * sizes.actions_pad + n]


@njit(**INNER)
def _read(q, plan, tokens, query_tokens, begin, limits):  # type: ignore[no-untyped-def]
    """Copy a sequence's tokens and limits into the memory, from row `begin` on."""
    sizes, work = plan.sizes, plan.work
    for i in range(begin, sizes.length):
        q[work.limits + i] = limits[i]
        row = work.tokens + i * sizes.token
        for k in range(sizes.token):
            if i < sizes.transitions:
                q[row + k] = tokens[i, k]
            else:
                q[row + k] = query_tokens[i - sizes.transitions, k]


@njit(**INNER)
def _write(q, plan, d_tokens, d_query_tokens):  # type: ignore[no-untyped-def]
    """Copy the gradients of a sequence's tokens out of the memory."""
    sizes, work = plan.sizes, plan.work
    for i in range(sizes.length):
        row = work.d_tokens + i * sizes.token_pad
        for k in range(sizes.token):
            if i < sizes.transitions:
                d_tokens[i, k] = q[row + k]
            else:
                d_query_tokens[i - sizes.transitions, k] = q[row + k]
