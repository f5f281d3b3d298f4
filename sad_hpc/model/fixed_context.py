"""Answers of a model to many queries about contexts that stay as they are.

The query is token 0, which every other token sees: all outputs change with it.  But in the first
block only one key and one value do.  What the tokens of a context make of each other there is
computed once, and a query is mixed into it: with s the score of its key, and Z the sum of the
weights of the others, attention gives it the share exp(s) / (exp(s) + Z).  Of the last block only
the last token's output is computed.
"""

import math

import torch
from torch import Tensor

from sad_hpc.model.transformer import Block, Transformer

ROWS = 32
"""Contexts whose (t, t) scores are in memory together."""


class FixedContexts:
    """n contexts of t transitions, ready for queries; for evaluation, without dropout.

    Args:
        model: the transformer.
        tokens: (n, t, width) of the contexts; t may be 0.
    """

    def __init__(self, model: Transformer, tokens: Tensor) -> None:
        self._model = model
        self._embedded = model.embed_at(tokens, 1)  # (n, t, E)
        first = self._first_block
        query, key, value = first.attention.heads_of(first.norm_attention(self._embedded))
        self._queries = query / math.sqrt(query.shape[-1])  # (n, H, t, D)
        parts = zip(*(part.split(ROWS) for part in (self._queries, key, value)), strict=True)
        log_sums, mixed = zip(*(_attend(*part) for part in parts), strict=True)
        self._log_sums = torch.cat(log_sums)  # (n, H, t): log Z
        self._mixed = torch.cat(mixed)  # (n, H, t, D)

    def answer(self, rows: Tensor, queries: Tensor) -> Tensor:
        """(B, A): logits for queries' tokens (B, 1, width) under the contexts `rows` (B,)."""
        first, model = self._first_block, self._model
        query = model.embed_at(queries, 0)  # (B, 1, E)
        _, key, value = first.attention.heads_of(first.norm_attention(query))  # (B, H, 1, D)
        scores = (self._queries[rows] * key).sum(dim=-1)  # (B, H, t)
        share = torch.sigmoid(scores - self._log_sums[rows]).unsqueeze(-1)
        mixed = self._mixed[rows].lerp(value, share)  # (B, H, t, D)
        x = torch.cat([query, self._embedded[rows]], dim=1)  # (B, t + 1, E)
        x = x + first.attention.project(torch.cat([value, mixed], dim=2))
        x = x + first.feed_forward(first.norm_feed_forward(x))
        for number in range(1, len(model.blocks)):
            last_only = number == len(model.blocks) - 1
            x = model.blocks[number](x, last_only=last_only)
        return model.head(model.norm(x[:, -1]))

    @property
    def _first_block(self) -> Block:
        block = self._model.blocks[0]
        assert isinstance(block, Block)
        return block


def _attend(queries: Tensor, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
    """Causal attention of scaled queries, (B, H, t, D) each: log Z (B, H, t), mixed values."""
    length = queries.shape[2]
    if length == 0:  # no maximum to subtract
        return queries.sum(dim=-1), values
    later = torch.ones(length, length, dtype=torch.bool, device=queries.device).triu(1)
    scores = (queries @ keys.transpose(2, 3)).masked_fill(later, -math.inf)
    return scores.logsumexp(dim=-1), scores.softmax(dim=-1) @ values
