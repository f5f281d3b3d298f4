"""A causal GPT-2 with queries after the context: the model of all methods.

    token        1     2    ...    T      q_1    ...   q_K
    content      transitions              query states
    attends to   itself and earlier ones  the first k_i transitions, and itself

A linear layer embeds [state, one-hot action, next state, reward] and, if `has_ends`, the end of the
episode.  A learned position is added: the index of a transition, or one position that all queries
share.  Queries do not attend to each other, and transitions do not attend to queries.  A context is
therefore encoded once for any number of queries with different prefixes.  With images, the features
of the state are those of its image and Miniworld's heading, and there is no next state.  Blocks are
those of GPT-2; with head_dim = embedding / heads they equal Hugging Face's `GPT2Model`.

If actions are vectors, each component has its own query: the state, a flag for the component, and
the values of the components before it, as the middles of their bins.
"""

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sad_hpc.experiment.sections import ModelConfig
from sad_hpc.model.bins import middles
from sad_hpc.model.context import Context, Inputs, Queries
from sad_hpc.model.image_encoder import ImageEncoder
from sad_hpc.model.initialization import initialize
from sad_hpc.model.kv_cache import KVCache

QUERIES_AT_ONCE = 256
"""Largest number of queries in one pass; it limits the size of the attention mask."""

Through = Callable[[Tensor, Tensor, Tensor], Tensor]
"""A function of transitions (B, t, width), queries (B, K, width) and prefixes (B, K)."""


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

    def rest(self, x: Tensor, mixed: Tensor) -> Tensor:
        """Add attention's result to the residual stream x, then the feed-forward layer's result."""
        x = x + mixed
        return x + self.feed_forward(self.norm_feed_forward(x))


class Transformer(nn.Module):
    """The causal transformer of all methods."""

    def __init__(self, config: ModelConfig, inputs: Inputs) -> None:
        super().__init__()
        self.inputs = inputs
        self.through: Through | None = None
        """Function that replaces `answer`; None: `answer` itself."""
        self.images = None if inputs.image_shape is None else ImageEncoder(inputs.image_shape)
        self.embed = nn.Linear(inputs.width, config.embedding)
        self.positions = nn.Embedding(inputs.horizon + 1, config.embedding)
        """Embeddings of positions: 0 for queries, 1..T for transitions."""
        self.dropout = nn.Dropout(config.dropout)
        self.blocks = nn.ModuleList(TransformerBlock(config) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.embedding)
        self.head = nn.Linear(config.embedding, inputs.n_actions)
        self.state_center: Tensor
        self.state_scale: Tensor
        self.register_buffer("state_center", torch.tensor(inputs.state_center), persistent=False)
        self.register_buffer("state_scale", torch.tensor(inputs.state_scale), persistent=False)
        initialize(self, config)

    def forward(self, context: Context, queries: Queries, through: Through | None = None) -> Tensor:
        """Return the action logits of all questions, (B, K, A).

        K = Q P, or Q P a if every component of vectors is asked for.

        Args:
            context: t transitions a row, 0 <= t <= T.
            queries: Q states a row, each after P prefixes.
            through: function that replaces `answer` in this call.
        """
        tokens, query_tokens = self.tokens(context, queries)
        return (through or self.through or self.answer)(
            tokens, query_tokens, self.asked_after(queries)
        )

    def tokens(self, context: Context, queries: Queries) -> tuple[Tensor, Tensor]:
        """Return the tokens of transitions (B, t, width) and of questions (B, K, width).

        If the queries are the context's own states, images are encoded once.
        """
        features = self.features(context.states, context.images)
        own = queries.states is context.states
        asked = features if own else self.features(queries.states, queries.images)
        return self._transitions(context, features), self._questions(asked, queries)

    def answer(self, tokens: Tensor, query_tokens: Tensor, prefixes: Tensor) -> Tensor:
        """Return the logits (B, K, A) of query tokens (B, K, width) after prefixes (B, K)."""
        cache = KVCache()
        if not self.inputs.stateless:
            self.extend(cache, tokens, with_answers=False)
            parts = [each.split(QUERIES_AT_ONCE, dim=1) for each in (query_tokens, prefixes)]
            return torch.cat([self.ask(cache, *part) for part in zip(*parts, strict=True)], dim=1)
        # All queries are equal, so each transition answers for the prefix that it ends.
        first = self.ask(cache, query_tokens[:, :1], prefixes[:, :1] * 0)
        every = torch.cat([first, self.extend(cache, tokens)], dim=1)
        return every.gather(1, prefixes.unsqueeze(2).expand(-1, -1, every.shape[2]))

    def extend(self, cache: KVCache, tokens: Tensor, with_answers: bool = True) -> Tensor:
        """Add transitions (B, l, width), l >= 0, to the cache.

        Returns:
            logits (B, l, A) after each transition, for stateless families; without `with_answers`,
            (B, 0, A).
        """
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
                x = block.rest(x, block.attention.mix(query, keys, values, None))
        cache.length += tokens.shape[1]
        return self.head(self.norm(x))

    def ask(self, cache: KVCache, query_tokens: Tensor, prefixes: Tensor) -> Tensor:
        """Return the logits (B, K, A) of queries (B, K, width) after cached prefixes (B, K)."""
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
            x = block.rest(x, block.attention.mix(query, key, value, mask))
        return self.head(self.norm(x))

    def ask_at_end(self, cache: KVCache, query_token: Tensor) -> Tensor:
        """Return the logits (B, A) of one query (B, 1, width) after all cached transitions.

        The cache needs room for one more: it holds the query's keys and values until the next call.
        This saves the copy of the cache that `ask` makes.
        """
        x = self.embed_at(query_token, torch.zeros(1, dtype=torch.int64, device=query_token.device))
        for number, block in enumerate(self.blocks):
            assert isinstance(block, TransformerBlock)
            query, key, value = block.split(x)
            keys, values = cache.append(number, key, value)
            x = block.rest(x, block.attention.mix(query, keys, values, None))
        logits: Tensor = self.head(self.norm(x))[:, 0]
        return logits

    def embed_at(self, tokens: Tensor, positions: Tensor) -> Tensor:
        """Embed tokens (B, L, width) at positions (L,) or (1,), as (B, L, E)."""
        # DeepSpeed converts weights to bf16, but not the buffers that scale tokens.
        x = self.embed(tokens.to(self.embed.weight.dtype))
        return self.dropout(x + self.positions(positions))

    def features(self, states: Tensor, images: Tensor | None = None) -> Tensor:
        """Return the features (..., F) of states (..., d) and their images (..., s, s, 3)."""
        if self.images is None:
            return self.scale(states)
        if self.inputs.states_are_images:
            return self.encoded(states)
        assert images is not None, "this model requires images of states"
        heading = states[..., 2]
        # The position is in the dataset for tests; it must not be an input.
        looks = torch.stack([torch.cos(heading), -torch.sin(heading)], dim=-1)
        parts = [self.images(images), looks]
        return torch.cat([part.to(self.dtype) for part in parts], dim=-1)

    def encoded(self, states: Tensor) -> Tensor:
        """Return features (..., F) for states that are images (..., H, W, C), and others unchanged.

        The features stand for the images in contexts and queries, so that an image that is used
        several times is encoded once.
        """
        if not self.inputs.states_are_images or states.dtype != torch.uint8:
            return states
        assert self.images is not None
        features: Tensor = self.images(states)
        return features.to(self.dtype)

    def query_tokens(self, queries: Queries) -> Tensor:
        """Return the tokens of questions, (B, K, width)."""
        return self._questions(self.features(queries.states, queries.images), queries)

    def asked_after(self, queries: Queries) -> Tensor:
        """Return the prefix of each question, (B, K)."""
        components = len(self.inputs.in_question(queries))
        return queries.prefixes.flatten(1).repeat_interleave(components, dim=1)

    def context_tokens(self, context: Context) -> Tensor:
        """Return the tokens of a context's transitions, (B, t, width)."""
        return self._transitions(context, self.features(context.states, context.images))

    def _questions(self, features: Tensor, queries: Queries) -> Tensor:
        inputs = self.inputs
        tokens = F.pad(features, (0, inputs.width - features.shape[2]))
        tokens = tokens.repeat_interleave(queries.prefixes.shape[2], dim=1)
        if queries.actions is None:
            return tokens
        asked = inputs.in_question(queries)
        tokens = tokens.unsqueeze(2).repeat(1, 1, len(asked), 1)
        values = middles(queries.actions[..., : inputs.earlier], inputs.n_actions)
        for row, component in enumerate(asked):
            tokens[:, :, row, features.shape[2] + component] = 1
            first = inputs.width - inputs.earlier
            tokens[:, :, row, first : first + component] = values[..., :component]
        return tokens.flatten(1, 2)

    def _transitions(self, context: Context, features: Tensor) -> Tensor:
        following = None
        if self.images is None:
            assert context.next_states is not None
            following = self.scale(context.next_states)
        return self.transition_tokens(
            features, context.actions, following, context.rewards, context.ends
        )

    def transition_tokens(
        self,
        features: Tensor,
        actions: Tensor,
        next_features: Tensor | None,
        rewards: Tensor,
        ends: Tensor | None = None,
    ) -> Tensor:
        """Return the tokens of transitions, (B, t, width).

        Args:
            features: (B, t, F) of states.
            actions: (B, t), or (B, t, a) vectors.
            next_features: (B, t, F) of next states; None: not part of the token.
            rewards: (B, t).
            ends: (B, t); None: not part of the token.
        """
        dtype = features.dtype
        if self.inputs.components is None:
            actions = F.one_hot(actions.long(), self.inputs.n_actions)
        parts = [features, actions.to(dtype)]
        if next_features is not None:
            parts.append(next_features)
        rewards = rewards.to(dtype) * self.inputs.reward_scale
        parts.append(rewards.unsqueeze(-1))
        if ends is not None:
            parts.append(ends.to(dtype).unsqueeze(-1))
        if self.inputs.earlier:
            parts.append(features.new_zeros(*features.shape[:2], self.inputs.earlier))
        return torch.cat(parts, dim=2)

    def scale(self, states: Tensor) -> Tensor:
        """Scale coordinates (..., d) to about [-2, 2]."""
        return (states.to(self.dtype) - self.state_center) * self.state_scale

    @property
    def dtype(self) -> torch.dtype:
        """Dtype of tokens."""
        return self.state_center.dtype
