"""Random numbers for kernels: xoshiro256++ streams with several unbiased small draws a word.

A stream has a state of four 64-bit words (Blackman and Vigna, 2021).  NumPy's SeedSequence seeds it
from (seed, split, block, purpose).  Small integers are mixed-radix digits of one 64-bit word by
multiplication (Lemire, 2019; Brackett-Rozinsky and Lemire, 2024).  With P the product of the
ranges, a word w is accepted if w P mod 2^64 >= 2^64 mod P.  The high halves of successive products
are then independent and exactly uniform.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic
from numpy.typing import NDArray

PURPOSES = (
    "transitions", "episodes", "sad", "dpt", "dpt_star", "tasks", "reference", "policies", "own",
)  # fmt: skip
"""Purposes of random streams.  Separate streams keep contexts independent of label settings."""

MAX_PRODUCT = 2**57
"""Largest product of ranges drawn from one word; less than 1 word in 128 is rejected."""


def stream(seed: int, split: int, block: int, purpose: str) -> NDArray[np.uint64]:
    """Return the state (4,) of the stream of one block and purpose."""
    key = (split, block, PURPOSES.index(purpose))
    state = np.random.SeedSequence(seed, spawn_key=key).generate_state(4, np.uint64)
    return state.astype(np.uint64)


def digits_per_word(base: int) -> int:
    """Return the number of draws from 0..base-1 that one word provides."""
    count = 1
    if base < 2:  # a policy with one action needs no draw
        return count
    while base ** (count + 1) <= MAX_PRODUCT:
        count += 1
    return count


@intrinsic
def high_product(typing_context: Any, a: Any, b: Any) -> Any:
    """Return the high 64 bits of the 128-bit product of two uint64."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        wide = ir.IntType(128)
        product = builder.mul(*(builder.zext(value, wide) for value in arguments))
        return builder.trunc(builder.lshr(product, ir.Constant(wide, 64)), ir.IntType(64))

    return types.uint64(types.uint64, types.uint64), generate


@njit(inline="always")
def next_word(state: NDArray[np.uint64]) -> np.uint64:
    """Return the next 64 random bits of a stream."""
    s0, s1, s2, s3 = state[0], state[1], state[2], state[3]
    total = s0 + s3
    result = ((total << np.uint64(23)) | (total >> np.uint64(41))) + s0
    shifted = s1 << np.uint64(17)
    s2 ^= s0
    s3 ^= s1
    state[1] = s1 ^ s2
    state[0] = s0 ^ s3
    state[2] = s2 ^ shifted
    state[3] = (s3 << np.uint64(45)) | (s3 >> np.uint64(19))
    return result


@njit(inline="always")
def next_double(state: NDArray[np.uint64]) -> np.float64:
    """Draw uniformly from the multiples of 2^-53 in [0, 1)."""
    return np.float64(next_word(state) >> np.uint64(11)) * 2.0**-53


@njit(inline="always")
def digits_word(state: NDArray[np.uint64], product: np.uint64, threshold: np.uint64) -> np.uint64:
    """Draw a word whose mixed-radix digits are unbiased for ranges with this product."""
    word = next_word(state)
    while word * product < threshold:
        word = next_word(state)
    return word


@njit(inline="always")
def digits_product(base: int, digits: int) -> np.uint64:
    """Return base^digits, the product of the ranges of a word's digits."""
    product = np.uint64(1)
    for _ in range(digits):
        product *= np.uint64(base)
    return product


@njit(inline="always")
def rejection_threshold(product: np.uint64) -> np.uint64:
    """Return 2^64 mod product."""
    return (np.uint64(0) - product) % product


def uneven_shares(
    count: int, size: int, shapes: tuple[float, float], generator: np.random.Generator
) -> NDArray[np.float64]:
    """Draw from symmetric Dirichlet distributions, (count, size), with parameters log-uniform in
    `shapes`: from nearly all weight in one place to nearly equal weights."""
    low, high = np.log(shapes)
    parameters = np.exp(generator.uniform(low, high, (count, 1)))
    weights = generator.standard_gamma(parameters, (count, size)) + np.finfo(np.float64).tiny
    return weights / weights.sum(axis=1, keepdims=True)
