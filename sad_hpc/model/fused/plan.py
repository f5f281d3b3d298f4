"""Layout of the kernel's memory, for a model and the lengths of its sequences."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sad_hpc.model.fused.attention import SIDE
from sad_hpc.model.fused.attention_back import KEYS

Table = NDArray[np.int64]

WEIGHTS = [
    "qkv_t",
    "qkv",
    "qkv_bias",
    "out_t",
    "out",
    "out_bias",
    "up_t",
    "up",
    "up_bias",
    "down_t",
    "down",
    "down_bias",
]
GRADIENTS = ["qkv", "qkv_bias", "out_t", "out_bias", "up", "up_bias", "down_t", "down_bias"]
SAVED = [
    "norm_1",
    "scale_1",
    "qkv",
    "across",
    "highs",
    "shares",
    "own",
    "mixed",
    "norm_2",
    "scale_2",
    "hidden",
    "slopes",
]


def up_to(size: int, multiple: int = 16) -> int:
    """Round `size` up to a multiple."""
    return -(-size // multiple) * multiple


@dataclass(frozen=True)
class Shape:
    """Sizes of a model."""

    layers: int
    heads: int
    embedding: int
    head_width: int
    n_actions: int
    token_width: int
    horizon: int
    stateless: bool


class Sizes(NamedTuple):
    """Sizes of the model and of its sequences."""

    layers: int
    heads: int
    e: int
    """E: embedding."""
    d: int
    """D: head width of the model's weights."""
    d_pad: int
    """D rounded up to a multiple of 16."""
    actions: int
    actions_pad: int
    token: int
    """Width of a token."""
    token_pad: int
    transitions: int
    """T"""
    queries: int
    """K"""
    length: int
    """L = T + K"""
    lanes: int
    """L padded to whole vectors."""
    stateless: bool


class WeightOffsets(NamedTuple):
    """Offsets of the folded weights."""

    embed_t: int
    embed: int
    positions: int
    head_t: int
    head: int
    head_bias: int
    layers: Table
    """(layers, 12): offsets of WEIGHTS."""


class GradientOffsets(NamedTuple):
    """Offsets of the gradients of folded weights."""

    first: int
    """Start of all gradients."""
    last: int
    """End of all gradients."""
    embed_t: int
    positions: int
    head: int
    head_bias: int
    layers: Table
    """(layers, 8): offsets of GRADIENTS."""


class WorkOffsets(NamedTuple):
    """Offsets of a sequence's tokens, activations and their gradients."""

    x: int
    d_x: int
    d_y: int
    big: int
    d_mixed: int
    norm: int
    scale: int
    logits: int
    limits: int
    """(lanes,)"""
    scores: int
    d_scores: int
    d_across: int
    deltas: int
    tokens: int
    d_tokens: int
    saved: Table
    """(layers, 12): offsets of SAVED, which the backward pass reads."""


class Plan(NamedTuple):
    """Sizes and offsets (in floats) of the kernel's memory, as named tuples for Numba."""

    sizes: Sizes
    weights: WeightOffsets
    gradients: GradientOffsets
    work: WorkOffsets
    zero: int
    """Offset of floats that are always 0."""
    size: int
    """Number of floats of the whole memory."""


class _Allocator:
    """Allocator of pieces of memory that start at cache lines."""

    def __init__(self) -> None:
        self.size = 0

    def take(self, size: int) -> int:
        """Allocate `size` floats, and return their offset."""
        self.size, offset = self.size + up_to(size), self.size
        return offset

    def take_all(self, sizes: dict[str, int]) -> dict[str, int]:
        """Allocate pieces by name, and return their offsets."""
        return {name: self.take(size) for name, size in sizes.items()}

    def tables(self, layers: int, names: list[str], sizes: dict[str, int]) -> Table:
        """Allocate pieces for each layer, and return a table of their offsets."""
        rows = [[self.take(sizes[name]) for name in names] for _ in range(layers)]
        return np.array(rows, np.int64)


def plan(shape: Shape, transitions: int, queries: int) -> Plan:
    """Plan the memory for T transitions and K queries a sequence."""
    e, d = shape.embedding, up_to(shape.head_width)
    width, hidden, length = shape.heads * d, 4 * e, transitions + queries
    actions, token = up_to(shape.n_actions), up_to(shape.token_width)
    # Transposes read and write whole vectors of rows.
    rows, lanes = up_to(length) + 16, up_to(length) + SIDE
    allocator = _Allocator()
    zero = allocator.take(max(4 * e, 3 * width, SIDE, actions, token))
    weights = allocator.tables(shape.layers, WEIGHTS, {
        "qkv_t": 3 * e * width, "qkv": 3 * e * width, "qkv_bias": 3 * width,
        "out_t": e * width, "out": e * width, "out_bias": e,
        "up_t": e * hidden, "up": e * hidden, "up_bias": hidden,
        "down_t": e * hidden, "down": e * hidden, "down_bias": e,
    })  # fmt: skip
    other_weights = allocator.take_all({
        "embed_t": shape.token_width * e, "embed": e * token, "positions": (shape.horizon + 1) * e,
        "head_t": e * actions, "head": actions * e, "head_bias": actions,
    })  # fmt: skip
    first_gradient = allocator.size
    gradients = allocator.tables(shape.layers, GRADIENTS, {
        "qkv": 3 * e * width, "qkv_bias": 3 * width, "out_t": e * width, "out_bias": e,
        "up": e * hidden, "up_bias": hidden, "down_t": e * hidden, "down_bias": e,
    })  # fmt: skip
    other_gradients = allocator.take_all({
        "embed_t": shape.token_width * e, "positions": (shape.horizon + 1) * e,
        "head": actions * e, "head_bias": actions,
    })  # fmt: skip
    last_gradient = allocator.size
    saved = allocator.tables(shape.layers, SAVED, {
        "norm_1": rows * e, "scale_1": rows, "qkv": 3 * rows * width,
        "across": width * lanes, "highs": shape.heads * lanes,
        "shares": shape.heads * lanes, "own": shape.heads * lanes, "mixed": rows * width,
        "norm_2": rows * e, "scale_2": rows, "hidden": rows * hidden, "slopes": rows * hidden,
    })  # fmt: skip
    work = allocator.take_all({
        "x": rows * e, "d_x": rows * e, "d_y": rows * e, "big": rows * max(hidden, 3 * width),
        "d_mixed": rows * width, "norm": rows * e, "scale": rows, "logits": rows * actions,
        "limits": lanes, "scores": SIDE * max(KEYS, transitions), "d_scores": SIDE * KEYS,
        "d_across": d * lanes, "deltas": lanes,
        "tokens": rows * shape.token_width, "d_tokens": rows * token,
    })  # fmt: skip
    sizes = Sizes(
        layers=shape.layers,
        heads=shape.heads,
        e=e,
        d=shape.head_width,
        d_pad=d,
        actions=shape.n_actions,
        actions_pad=actions,
        token=shape.token_width,
        token_pad=token,
        transitions=transitions,
        queries=queries,
        length=length,
        lanes=lanes,
        stateless=shape.stateless,
    )
    return Plan(
        sizes,
        WeightOffsets(**other_weights, layers=weights),
        GradientOffsets(first_gradient, last_gradient, **other_gradients, layers=gradients),
        WorkOffsets(**work, saved=saved),
        zero,
        allocator.size,
    )
