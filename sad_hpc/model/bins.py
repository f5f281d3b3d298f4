"""Continuous actions as bins: what a model answers about each component of a vector in [-1, 1]."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


def bins_of(actions: Tensor, bins: int) -> Tensor:
    """(...) in [-1, 1] -> (...) int64: the bin of each number, of `bins` equally wide ones."""
    return ((actions + 1) * (bins / 2)).floor().long().clamp(0, bins - 1)


def likeliest(logits: NDArray[np.float32]) -> NDArray[np.float32]:
    """(..., bins) -> (...): the middle of the likeliest bin."""
    bins = logits.shape[-1]
    return ((2 * logits.argmax(axis=-1) + 1) / bins - 1).astype(np.float32)


def drawn(logits: NDArray[np.float32], generator: np.random.Generator) -> NDArray[np.float32]:
    """(..., bins) -> (...): numbers of the softmax's density, which is constant within a bin."""
    bins = logits.shape[-1]
    weights = torch.from_numpy(logits).double().softmax(dim=-1).numpy()
    below = weights.cumsum(axis=-1) <= generator.random(logits.shape[:-1])[..., None]
    chosen = np.minimum(below.sum(axis=-1), bins - 1)
    return (2 * (chosen + generator.random(chosen.shape)) / bins - 1).astype(np.float32)
