"""Conversion between continuous actions in [-1, 1] and the bins of the model's answers."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


def bins_of(actions: Tensor, bins: int) -> Tensor:
    """Return the bin (int64) of each number in [-1, 1], among `bins` bins of equal width."""
    return ((actions + 1) * (bins / 2)).floor().long().clamp(0, bins - 1)


def middles(actions: Tensor, bins: int) -> Tensor:
    """Return the middle (float32) of the bin of each number; see `bins_of`."""
    return (2 * bins_of(actions, bins) + 1) / bins - 1


def likeliest(logits: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the middle (...) of the most likely bin, by logits (..., bins)."""
    bins = logits.shape[-1]
    return ((2 * logits.argmax(axis=-1) + 1) / bins - 1).astype(np.float32)


def mean(logits: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the mean (...) of the answer, by logits (..., bins)."""
    bins = logits.shape[-1]
    middles = torch.linspace(1 / bins - 1, 1 - 1 / bins, bins, dtype=torch.float64)
    weights = torch.from_numpy(logits).double().softmax(dim=-1)
    found: NDArray[np.float32] = (weights @ middles).float().numpy()
    return found


def drawn(logits: NDArray[np.float32], generator: np.random.Generator) -> NDArray[np.float32]:
    """Sample numbers (...) by logits (..., bins), uniformly within the sampled bin."""
    bins = logits.shape[-1]
    weights = torch.from_numpy(logits).double().softmax(dim=-1).numpy()
    below = weights.cumsum(axis=-1) <= generator.random(logits.shape[:-1])[..., None]
    chosen = np.minimum(below.sum(axis=-1), bins - 1)
    return (2 * (chosen + generator.random(chosen.shape)) / bins - 1).astype(np.float32)
