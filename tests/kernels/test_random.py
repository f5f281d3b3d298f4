import numpy as np
import pytest
from numba import njit
from scipy import stats

from sad_hpc.distill.contexts import sample_state_actions
from sad_hpc.errors import ConfigError
from sad_hpc.experiment.behavior_policy import policy_table
from sad_hpc.kernels.random import (
    digits_per_word,
    digits_word,
    high_product,
    next_word,
    rejection_threshold,
    stream,
)
from sad_hpc.tasks.mdps import TabularMDPs


@njit
def _words(state, count):
    return [next_word(state) for _ in range(count)]


@njit
def _accepted(state, product, count):
    threshold = rejection_threshold(product)
    return [digits_word(state, product, threshold) for _ in range(count)]


@njit
def _high(a, b):
    return high_product(a, b)


def test_words_are_those_of_xoshiro256plusplus():
    # The published reference, in Python's unbounded integers.
    s = [1, 2, 3, 4]
    mask = 2**64 - 1

    def rotate(x: int, k: int) -> int:
        return ((x << k) | (x >> (64 - k))) & mask

    expected = []
    for _ in range(50):
        expected.append((rotate((s[0] + s[3]) & mask, 23) + s[0]) & mask)
        t = (s[1] << 17) & mask
        s[2] ^= s[0]
        s[3] ^= s[1]
        s[1] ^= s[2]
        s[0] ^= s[3]
        s[2] ^= t
        s[3] = rotate(s[3], 45)
    assert _words(np.array([1, 2, 3, 4], np.uint64), 50) == expected


def test_high_product_is_that_of_unbounded_integers():
    values = stream(0, 0, 0, "sad")
    for a in values:
        for b in values:
            assert _high(a, b) == (int(a) * int(b)) >> 64


def test_accepted_words_are_exactly_those_that_leave_no_bias():
    # Of a word space of 2^64, each of `product` outcomes must keep floor(2^64 / product) words:
    # the accepted residues word * product mod 2^64 of one outcome number exactly that many.
    for base in (3, 5, 245, 500):
        product = base ** digits_per_word(base)
        assert 2**57 // base < product <= 2**57
        threshold = 2**64 % product
        for outcome in (0, 1, product // 3, product - 1):
            first = -(-outcome * 2**64 // product)  # the words of this outcome start here
            last = -(-(outcome + 1) * 2**64 // product)
            rejected = sum(
                word * product % 2**64 < threshold for word in (first, first + 1) if word < last
            )
            assert last - first - rejected == 2**64 // product
    words = _accepted(stream(0, 0, 0, "dpt"), np.uint64(5**24), 1000)
    assert all(int(word) * 5**24 % 2**64 >= 2**64 % 5**24 for word in words)


def tasks(n_states: int, count: int) -> tuple[TabularMDPs, np.ndarray]:
    """MDPs of so many states, and so many tasks of it."""
    shape = (1, n_states, 5)
    mdps = TabularMDPs(np.zeros(shape, np.uint16), np.zeros(shape, np.float32))
    return mdps, np.zeros(count, np.int64)


@pytest.mark.parametrize("n_states", [1, 49, 100, 1000])
def test_states_and_actions_are_uniform_and_independent(n_states: int):
    table = policy_table("uniform", 5)
    states, actions = sample_state_actions(*tasks(n_states, 400_000), table, stream(1, 0, 0, "dpt"))
    counts = np.bincount(states.astype(int) * 5 + actions, minlength=5 * n_states)
    assert stats.chisquare(counts).pvalue > 1e-3


def test_neighbouring_draws_of_one_word_are_independent():
    states, actions = sample_state_actions(
        *tasks(7, 700_001), policy_table("uniform", 5), stream(2, 0, 0, "dpt")
    )
    pairs = np.bincount(actions[:-1].astype(int) * 7 + states[1:], minlength=35)
    assert stats.chisquare(pairs).pvalue > 1e-3


def test_any_fixed_policy_is_drawn_exactly():
    policy = [0.5, 0.125, 0.125, 0.25, 0.0]
    _, actions = sample_state_actions(
        *tasks(49, 400_000), policy_table(policy, 5), stream(3, 0, 0, "transitions")
    )
    counts = np.bincount(actions, minlength=5)
    assert counts[4] == 0
    assert stats.chisquare(counts[:4], 400_000 * np.array(policy[:4])).pvalue > 1e-3


@pytest.mark.parametrize("policy", [[0.5, 0.6], [1.5, -0.5], [0.3, 0.3]])
def test_a_policy_that_is_no_distribution_is_refused(policy: list[float]):
    with pytest.raises(ConfigError, match="behavior_policy"):
        policy_table(policy, 2)


def test_streams_differ_by_each_of_their_keys():
    keys = [
        (0, 0, 0, "sad"),
        (1, 0, 0, "sad"),
        (0, 1, 0, "sad"),
        (0, 0, 1, "sad"),
        (0, 0, 0, "dpt"),
    ]
    assert len({tuple(stream(*key)) for key in keys}) == len(keys)
