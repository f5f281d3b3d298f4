"""The answers of a trained model by the kernel."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sad_hpc.model.fused.kernel import Kernel
from sad_hpc.model.transformer import Transformer


class Answers:
    """A function from transitions, queries and prefixes to logits; see `SequenceModel.answer`."""

    def __init__(self, model: Transformer) -> None:
        weights = dict(model.named_parameters())
        self._kernel = Kernel(model, {name: each.numel() for name, each in weights.items()})
        self._flat = torch.cat([each.detach().flatten() for each in weights.values()])

    def __call__(self, tokens: Tensor, query_tokens: Tensor, prefixes: Tensor) -> Tensor:
        """Return logits (B, K, A)."""
        return self._kernel.answer(self._flat, tokens, query_tokens, prefixes)

    def hold(self, tokens: Tensor) -> "HeldContexts":
        """Encode contexts (n, t, width)."""
        return HeldContexts(self._kernel, self._flat, tokens)


class HeldContexts:
    """Encoded contexts.

    Args:
        kernel: the model's kernel.
        flat: (P,) its weights.
        tokens: (n, t, width).
    """

    def __init__(self, kernel: Kernel, flat: Tensor, tokens: Tensor) -> None:
        self._kernel, self._flat, self._length = kernel, flat, tokens.shape[1]
        self._held = kernel.hold(flat, tokens)

    def ask(self, rows: NDArray[np.int64], query_tokens: Tensor) -> Tensor:
        """Return the logits (m, K, A) of queries (m, K, width) after the whole contexts `rows`."""
        return self._kernel.answer_held(self._flat, self._held, self._length, rows, query_tokens)
