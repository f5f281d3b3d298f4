"""A causal GPT-2 with queries after the context: the model of all methods.

    token        1     2    ...    T      q_1    ...   q_K
    content      transitions              query states
    attends to   itself and earlier ones  the first k_i transitions, and itself

A linear layer embeds the tokens of `SequenceModel`.  A learned position is added: the index of a
transition, or one position that all queries share.  Queries do not attend to each other, and
transitions do not attend to queries.  Blocks are those of GPT-2; with head_dim = embedding / heads
they equal Hugging Face's `GPT2Model`.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call
from torch.utils.checkpoint import checkpoint

from sad_hpc.experiment.sections import ModelConfig
from sad_hpc.model.context import Inputs
from sad_hpc.model.initialization import initialize
from sad_hpc.model.kv_cache import KVCache
from sad_hpc.model.sequence_model import SequenceModel


def head_width(config: ModelConfig) -> int:
    """Return head_dim; the default is embedding / heads rounded up to a multiple of 8."""
    return config.head_dim or 8 * math.ceil(config.embedding / config.heads / 8)


class Attention(nn.Module):
    """Self-attention with heads of any width."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.heads, self.attention_dropout = config.heads, config.attention_dropout
        width = config.heads * head_width(config)
        self.query_key_value = nn.Linear(config.embedding, 3 * width)
        self.projection = nn.Linear(width, config.embedding)
        self.dropout = nn.Dropout(config.dropout)

    def split(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Compute queries, keys and values (B, H, L, D) of inputs (B, L, E)."""
        batch, length, _ = x.shape
        width = self.projection.in_features // self.heads
        parts = self.query_key_value(x).view(batch, length, 3, self.heads, width)
        query, key, value = parts.permute(2, 0, 3, 1, 4).unbind()
        return query, key, value

    def mix(self, query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
        """Attend, and project the result to (B, l, E).

        Args:
            query: (B, H, l, D).
            keys: (B, H, L, D).
            values: (B, H, L, D).
            mask: True where a query attends to a key; None: the l queries belong to the last l
                keys and attend causally.
        """
        length = query.shape[2]
        if mask is None and 1 < length < keys.shape[2]:
            every = torch.ones(length, keys.shape[2], dtype=torch.bool, device=query.device)
            mask = every.tril(keys.shape[2] - length)
        mixed = F.scaled_dot_product_attention(
            query,
            keys,
            values,
            mask,
            dropout_p=self.attention_dropout if self.training else 0.0,
            is_causal=mask is None and length > 1,
        )
        # (B, H, l, D) -> (B, l, H D) -> (B, l, E)
        return self.dropout(self.projection(mixed.transpose(1, 2).flatten(2)))


class TransformerBlock(nn.Module):
    """A GPT-2 block: attention and a feed-forward layer, each after a layer norm."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.norm_attention = nn.LayerNorm(config.embedding)
        self.attention = Attention(config)
        self.norm_feed_forward = nn.LayerNorm(config.embedding)
        self.feed_forward = nn.Sequential(
            nn.Linear(config.embedding, 4 * config.embedding),
            nn.GELU(approximate="tanh"),
            nn.Linear(4 * config.embedding, config.embedding),
            nn.Dropout(config.dropout),
        )

    def split(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Compute queries, keys and values (B, H, L, D) of inputs (B, L, E)."""
        return self.attention.split(self.norm_attention(x))

    def forward(
        self, x: Tensor, query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None = None
    ) -> Tensor:
        """Add attention's result to the residual stream x, then the feed-forward layer's result.

        Args:
            x: (B, l, E).
            query: (B, H, l, D), of `split`.
            keys: (B, H, L, D).
            values: (B, H, L, D).
            mask: see `Attention.mix`.
        """
        x = x + self.attention.mix(query, keys, values, mask)
        return x + self.feed_forward(self.norm_feed_forward(x))


class Transformer(SequenceModel):
    """The causal transformer of all methods."""

    def __init__(self, config: ModelConfig, inputs: Inputs) -> None:
        super().__init__(inputs)
        self.checkpoint_activations = False
        """True if the backward pass of a training computes the inside of blocks again."""
        self.embed = nn.Linear(inputs.width, config.embedding)
        self.positions = nn.Embedding(inputs.horizon + 1, config.embedding)
        """Embeddings of positions: 0 for queries, 1..T for transitions."""
        self.dropout = nn.Dropout(config.dropout)
        self.blocks = nn.ModuleList(TransformerBlock(config) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.embedding)
        self.head = nn.Linear(config.embedding, inputs.n_actions)
        initialize(self, config)

    def extend(self, cache: KVCache, tokens: Tensor, with_answers: bool = True) -> Tensor:
        """Implement `SequenceModel.extend`."""
        first = 1 + cache.length
        places = torch.arange(first, first + tokens.shape[1], device=tokens.device)
        x = self.embed_at(tokens, places)
        for number, block in enumerate(self.blocks):
            assert isinstance(block, TransformerBlock)
            query, key, value = block.split(x)
            keys, values = cache.append(number, key, value)
            if not with_answers and number + 1 == len(self.blocks):
                x = x[:, :0]
            elif tokens.shape[1]:
                x = self._through(block, x, query, keys, values)
        cache.length += tokens.shape[1]
        return self.head(self.norm(x))

    def ask(self, cache: KVCache, query_tokens: Tensor, prefixes: Tensor) -> Tensor:
        """Implement `SequenceModel.ask`."""
        batch, count = prefixes.shape
        places = torch.arange(cache.length, device=prefixes.device)
        itself = torch.eye(count, dtype=torch.bool, device=prefixes.device)
        seen = places < prefixes.unsqueeze(2)
        mask = torch.cat([seen, itself.expand(batch, -1, -1)], dim=2).unsqueeze(1)
        x = self.embed_at(query_tokens, places.new_zeros(1))
        for number, block in enumerate(self.blocks):
            assert isinstance(block, TransformerBlock)
            query, key, value = block.split(x)
            if cache.length:
                keys, values = cache.read(number)
                key, value = torch.cat([keys, key], dim=2), torch.cat([values, value], dim=2)
            x = self._through(block, x, query, key, value, mask)
        return self.head(self.norm(x))

    def ask_at_end(self, cache: KVCache, query_token: Tensor) -> Tensor:
        """Implement `SequenceModel.ask_at_end`.

        The cache needs room for one more: it holds the query's keys and values until the next call.
        This saves the copy of the cache that `ask` makes.
        """
        x = self.embed_at(query_token, torch.zeros(1, dtype=torch.int64, device=query_token.device))
        for number, block in enumerate(self.blocks):
            assert isinstance(block, TransformerBlock)
            query, key, value = block.split(x)
            keys, values = cache.append(number, key, value)
            x = block(x, query, keys, values)
        logits: Tensor = self.head(self.norm(x))[:, 0]
        return logits

    def _through(self, block: TransformerBlock, x: Tensor, *others: Tensor) -> Tensor:
        """Return a block's result, see `TransformerBlock.forward`."""
        if not (self.checkpoint_activations and self.training):
            result: Tensor = block(x, *others)
            return result
        # The backward pass calls the block again, when a functional call has ended and the block
        # has no weights.
        names, weights = zip(*block.named_parameters(), strict=True)

        def run(weights: tuple[Tensor, ...], *inputs: Tensor) -> Tensor:
            again: Tensor = functional_call(block, dict(zip(names, weights, strict=True)), inputs)
            return again

        result = checkpoint(run, weights, x, *others, use_reentrant=False)
        return result

    def embed_at(self, tokens: Tensor, positions: Tensor) -> Tensor:
        """Embed tokens (B, L, width) at positions (L,) or (1,), as (B, L, E)."""
        # DeepSpeed converts weights to bf16, but not the buffers that scale tokens.
        x = self.embed(tokens.to(self.embed.weight.dtype))
        return self.dropout(x + self.positions(positions))
