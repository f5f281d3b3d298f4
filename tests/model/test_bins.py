"""Continuous actions as bins."""

import numpy as np
import torch

from sad_hpc.model.bins import bins_of, drawn, likeliest, mean


def test_bins_divide_the_range_evenly_and_their_middles_lie_in_them() -> None:
    numbers = torch.linspace(-1, 1, 1001)
    for bins in (2, 5, 11):
        found = bins_of(numbers, bins)
        counts = np.bincount(found.numpy(), minlength=bins)
        assert counts.max() - counts.min() <= 2 and len(counts) == bins
        middles = likeliest(np.eye(bins, dtype=np.float32))
        assert bins_of(torch.from_numpy(middles), bins).tolist() == list(range(bins))
        assert (np.abs(numbers - middles[found]) <= 1 / bins + 1e-6).all()


def test_draws_have_the_density_of_the_softmax() -> None:
    logits = np.log(np.array([0.1, 0.2, 0.0001, 0.6999], np.float32))
    numbers = drawn(np.tile(logits, (20_000, 1)), np.random.default_rng(0))
    shares = np.bincount(bins_of(torch.from_numpy(numbers), 4), minlength=4) / len(numbers)
    np.testing.assert_allclose(shares, np.exp(logits), atol=0.02)
    last = numbers[numbers > 0.5]
    assert abs(last.mean() - 0.75) < 0.01 and last.max() <= 1


def test_the_mean_is_that_of_draws() -> None:
    logits = np.random.default_rng(1).normal(size=(3, 2, 7)).astype(np.float32)
    numbers = [drawn(logits, np.random.default_rng(seed)) for seed in range(4000)]
    np.testing.assert_allclose(mean(logits), np.mean(numbers, axis=0), atol=0.04)
    certain = np.where(np.arange(7) == 5, np.float32(0), np.float32(-np.inf))
    np.testing.assert_allclose(mean(certain), likeliest(certain), atol=1e-6)
