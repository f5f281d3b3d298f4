"""A model of contexts and queries: their tokens, and the logits of queries after prefixes.

    token        1     2    ...    T      q_1    ...   q_K
    content      transitions              query states
    answers for                           the first k_i transitions

The token of a transition is [state, one-hot action, next state, reward] and, if `has_ends`, the end
of the episode; with images it is [image features, heading, one-hot action, reward].  If actions are
vectors, each component has its own query: the state, a flag for the component, and the values of
the components before it, as the middles of their bins, where transitions have zeros.

Subclasses encode the tokens: transitions see earlier ones, a query sees the transitions of its
prefix, and no transition sees a query.  A context is therefore encoded once for any number of
queries.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sad_hpc.model.bins import middles
from sad_hpc.model.context import Context, Inputs, Queries
from sad_hpc.model.image_encoder import ImageEncoder
from sad_hpc.model.kv_cache import KVCache

QUERIES_AT_ONCE = 256
"""Largest number of queries in one pass; it limits the size of an attention mask."""

Through = Callable[[Tensor, Tensor, Tensor], Tensor]
"""A function of transitions (B, t, width), queries (B, K, width) and prefixes (B, K)."""


class SequenceModel(nn.Module, ABC):
    """The part of a model that does not depend on its architecture."""

    def __init__(self, inputs: Inputs) -> None:
        super().__init__()
        self.inputs = inputs
        self.through: Through | None = None
        """Function that replaces `answer`; None: `answer` itself."""
        self.images = None if inputs.image_shape is None else ImageEncoder(inputs.image_shape)
        self.state_center: Tensor
        self.state_scale: Tensor
        self.register_buffer("state_center", torch.tensor(inputs.state_center), persistent=False)
        self.register_buffer("state_scale", torch.tensor(inputs.state_scale), persistent=False)

    @abstractmethod
    def extend(self, cache: KVCache, tokens: Tensor, with_answers: bool = True) -> Tensor:
        """Add transitions (B, l, width), l >= 0, to the cache.

        Returns:
            logits (B, l, A) after each transition, for stateless families; without `with_answers`,
            (B, 0, A).
        """

    @abstractmethod
    def ask(self, cache: KVCache, query_tokens: Tensor, prefixes: Tensor) -> Tensor:
        """Return the logits (B, K, A) of queries (B, K, width) after cached prefixes (B, K)."""

    def ask_at_end(self, cache: KVCache, query_token: Tensor) -> Tensor:
        """Return the logits (B, A) of one query (B, 1, width) after all cached transitions."""
        prefixes = torch.full((len(query_token), 1), cache.length, device=query_token.device)
        return self.ask(cache, query_token, prefixes)[:, 0]

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

    @property
    def device(self) -> torch.device:
        """Device of the model."""
        return self.state_center.device
