"""Contexts that a model has read once, and is asked behind again and again."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sad_hpc.model.memory import Memory
from sad_hpc.model.transformer import Transformer


class EncodedContexts:
    """n contexts of t transitions.

    Args:
        model: the transformer.
        tokens: (n, t, width) of the transitions.
        batch_size: contexts in one forward pass.
    """

    @torch.no_grad()
    def __init__(self, model: Transformer, tokens: Tensor, batch_size: int) -> None:
        self._model, self._batch_size = model, batch_size
        self._memories = []
        for part in tokens.split(batch_size):
            self._memories.append(Memory())
            model.extend(self._memories[-1], part, with_answers=False)

    @torch.no_grad()
    def ask(self, query: Tensor) -> NDArray[np.float32]:
        """(n, K, A): the logits for queries (n, K, width), each after the whole of its context."""
        parts = []
        for memory, part in zip(self._memories, query.split(self._batch_size), strict=True):
            whole = torch.full(part.shape[:2], memory.length, device=part.device)
            parts.append(self._model.ask(memory, part, whole))
        return torch.cat(parts).float().cpu().numpy()
