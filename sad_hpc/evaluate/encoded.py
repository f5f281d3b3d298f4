"""Contexts that are encoded once and then queried several times."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sad_hpc.model.kv_cache import KVCache
from sad_hpc.model.sequence_model import SequenceModel


class EncodedContexts:
    """n encoded contexts of t transitions.

    Args:
        model: the trained model.
        tokens: (n, t, width), tokens of the transitions.
        batch_size: number of contexts in one forward pass.
    """

    @torch.no_grad()
    def __init__(self, model: SequenceModel, tokens: Tensor, batch_size: int) -> None:
        self._model, self._batch_size = model, batch_size
        self._caches = []
        for part in tokens.split(batch_size):
            self._caches.append(KVCache(part.shape[1] + 1))
            model.extend(self._caches[-1], part, with_answers=False)

    @torch.no_grad()
    def ask(self, query: Tensor) -> NDArray[np.float32]:
        """Return the logits (n, A) of one query each, (n, 1, width), after the whole contexts."""
        parts = zip(self._caches, query.split(self._batch_size), strict=True)
        answers = [self._model.ask_at_end(*part) for part in parts]
        return torch.cat(answers).float().cpu().numpy()
