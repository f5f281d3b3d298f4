"""Contexts that are encoded once and then queried several times."""

import functools
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sad_hpc.model.context import Context
from sad_hpc.model.fused.answers import Answers, HeldContexts
from sad_hpc.model.kv_cache import KVCache
from sad_hpc.model.sequence_model import SequenceModel

Ask = Callable[[Tensor], NDArray[np.float32]]
"""Map the tokens (n, K, width) of K queries after each of n contexts to logits (n, K, A)."""

FEW_QUERIES = 8
"""Number of queries of a context below which torch is faster than the kernel."""


IMAGE_CONTEXTS = 32
"""Most contexts whose images are encoded at once, since the encoder's activations are large."""


def part_size(model: SequenceModel, batch_size: int) -> int:
    """Return the number of contexts whose tokens are made at once."""
    return min(batch_size, IMAGE_CONTEXTS) if model.inputs.states_are_images else batch_size


@torch.no_grad()
def tokens_of(model: SequenceModel, context: Context, batch_size: int) -> Tensor:
    """Return the tokens of contexts, (n, t, width)."""
    if model.inputs.states_are_images:
        context = replace(context, next_states=None)  # tokens do not have them
    parts = [
        model.context_tokens(part.map(lambda column: column.to(model.device)))
        for part in context.split(part_size(model, batch_size))
    ]
    return torch.cat(parts)


class EncodedContexts:
    """n encoded contexts of t transitions.

    Args:
        model: the trained model.
        caches: parts of the contexts, each with at most batch_size of them.
        batch_size: number of contexts in one forward pass.
    """

    def __init__(self, model: SequenceModel, caches: list[KVCache], batch_size: int) -> None:
        self._model, self._caches, self._batch_size = model, caches, batch_size

    @classmethod
    @torch.no_grad()
    def of_tokens(cls, model: SequenceModel, tokens: Tensor, batch_size: int) -> "EncodedContexts":
        """Encode the tokens of transitions, (n, t, width)."""
        caches = []
        for part in tokens.split(batch_size):
            caches.append(KVCache(part.shape[1] + 1))  # see `ask_at_end`
            model.extend(caches[-1], part, with_answers=False)
        return cls(model, caches, batch_size)

    def at(self, rows: NDArray[np.int64]) -> "EncodedContexts":
        """Return copies of the contexts `rows` (m,)."""
        parts = [self._every.at(part) for part in torch.from_numpy(rows).split(self._batch_size)]
        return EncodedContexts(self._model, parts, self._batch_size)

    @functools.cached_property
    def _every(self) -> KVCache:
        return KVCache.joined(self._caches)

    @torch.no_grad()
    def ask(self, query: Tensor) -> NDArray[np.float32]:
        """Implement `Ask`, after the whole contexts."""
        parts = zip(self._caches, query.split(self._batch_size), strict=True)
        return torch.cat([self._answers(*part) for part in parts]).float().cpu().numpy()

    def _answers(self, cache: KVCache, query: Tensor) -> Tensor:
        if query.shape[1] == 1:
            return self._model.ask_at_end(cache, query)[:, None]
        whole = torch.full(query.shape[:2], cache.length, device=query.device)
        return self._model.ask(cache, query, whole)


class TaskContexts:
    """The contexts of tasks in each of which any number of simulators ask.

    Args:
        model: the trained model.
        tokens: (n, t, width), the context of each task.
        batch_size: number of contexts in one forward pass of torch.
    """

    def __init__(self, model: SequenceModel, tokens: Tensor, batch_size: int) -> None:
        self._model, self._tokens, self._batch_size = model, tokens, batch_size

    def ask(self, tasks: NDArray[np.int64], queries: int) -> Ask:
        """Return the function that answers `queries` after the context of each of `tasks` (m,)."""
        if queries < FEW_QUERIES or self._held is None:
            return self._encoded.at(tasks).ask
        held = self._held
        return lambda query: held.ask(tasks, query).numpy()

    @functools.cached_property
    def _encoded(self) -> EncodedContexts:
        return EncodedContexts.of_tokens(self._model, self._tokens, self._batch_size)

    @functools.cached_property
    def _held(self) -> HeldContexts | None:
        """The contexts in the kernel; None: it does not support the model."""
        through = self._model.through
        return through.hold(self._tokens) if isinstance(through, Answers) else None
