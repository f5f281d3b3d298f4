"""A causal GPT-2 that answers, for every context length at once, which action to take.

Token 0 holds the query state; tokens 1..T hold one transition each.  A linear layer embeds
[state, one-hot action, next state, reward], learned positions are added, and the output at token t
is the model's answer after t transitions of context.  Where a state is seen as an image, tokens
are [image's features, heading, one-hot action, reward].  Blocks are those of GPT-2; where
head_dim is embedding / heads they equal Hugging Face's `GPT2Model`.
"""

import math
import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from sad_hpc.experiment.sections import ModelConfig
from sad_hpc.model.image_encoder import IMAGE_FEATURES, ImageEncoder
from sad_hpc.tasks.base import TaskFamily


@dataclass(frozen=True)
class Inputs:
    """What a task family shows to the model: sizes, and how states and rewards are scaled."""

    n_actions: int
    horizon: int
    """T: the longest context."""
    state_center: tuple[float, ...]
    state_scale: tuple[float, ...]
    image_size: int | None = None
    """Pixels along each side of a state's image; states are poses (x, z, heading) then."""
    reward_scale: float = 1.0

    @classmethod
    def of_family(cls, family: TaskFamily) -> "Inputs":
        """The inputs of a family."""
        return cls(
            family.n_actions,
            family.config.horizon,
            family.state_center,
            family.state_scale,
            family.image_size,
            family.reward_scale,
        )

    @property
    def features(self) -> int:
        """Numbers that describe a state: its coordinates, or image and heading."""
        return len(self.state_center) if self.image_size is None else IMAGE_FEATURES + 2

    @property
    def width(self) -> int:
        """Numbers in a token: state, one-hot action, next state (unless seen as images), reward."""
        next_state = self.features if self.image_size is None else 0
        return self.features + self.n_actions + next_state + 1


@dataclass(frozen=True)
class Context:
    """A batch of contexts in the dataset's compact dtypes; t may be 0 to T."""

    states: Tensor
    """(B, t, d) uint8, or float64 poses"""
    actions: Tensor
    """(B, t) uint8"""
    rewards: Tensor
    """(B, t)"""
    next_states: Tensor
    """(B, t, d), as states"""
    images: Tensor | None = None
    """(B, t, s, s, 3) uint8: images of the states"""

    @classmethod
    def of_group(cls, columns: Mapping[str, NDArray[Any]], group: str) -> "Context":
        """The contexts of one group of a dataset, from columns such as `context/states`."""
        return cls(
            **{
                name.removeprefix(f"{group}/"): torch.from_numpy(column)
                for name, column in columns.items()
                if name.startswith(f"{group}/")
            }
        )

    def map(self, change: Callable[[Tensor], Tensor]) -> "Context":
        """The context with every part changed in the same way."""
        parts = {name: part for name, part in vars(self).items() if part is not None}
        return Context(**{name: change(part) for name, part in parts.items()})

    def split(self, size: int) -> Iterator["Context"]:
        """The context in parts of `size` rows."""
        for first in range(0, len(self.actions), size):
            rows = slice(first, first + size)
            yield self.map(operator.itemgetter(rows))


class Cache:
    """Keys and values of the tokens so far, of each block, for `Transformer.extend`.

    Args:
        capacity: tokens at most.
    """

    def __init__(self, capacity: int) -> None:
        self.length, self._capacity = 0, capacity
        self._parts: dict[int, tuple[Tensor, Tensor]] = {}

    def append(self, block: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """All keys and values (B, H, L, D) of a block, after those (B, H, l, D) of new tokens."""
        if block not in self._parts:
            shape = (*key.shape[:2], self._capacity, key.shape[3])
            self._parts[block] = key.new_empty(shape), value.new_empty(shape)
        last = self.length + key.shape[2]
        keys, values = self._parts[block]
        keys[:, :, self.length : last] = key
        values[:, :, self.length : last] = value
        return keys[:, :, :last], values[:, :, :last]


def head_width(config: ModelConfig) -> int:
    """head_dim, by default embedding / heads rounded up to a multiple of 8."""
    return config.head_dim or 8 * math.ceil(config.embedding / config.heads / 8)


class Attention(nn.Module):
    """Causal self-attention with heads of any width."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.heads, self.attention_dropout = config.heads, config.attention_dropout
        width = config.heads * head_width(config)
        self.query_key_value = nn.Linear(config.embedding, 3 * width)
        self.projection = nn.Linear(width, config.embedding)
        self.dropout = nn.Dropout(config.dropout)

    def forward(
        self, x: Tensor, cache: Cache | None = None, block: int = 0, last_only: bool = False
    ) -> Tensor:
        """(B, L, E) -> (B, L, E), or (B, 1, E) if `last_only`; with a cache, x is one new token."""
        batch, length, _ = x.shape
        # (B, L, 3 H D) -> 3 x (B, H, L, D)
        width = self.projection.in_features // self.heads
        parts = self.query_key_value(x).view(batch, length, 3, self.heads, width)
        query, key, value = parts.permute(2, 0, 3, 1, 4).unbind()
        if cache is not None:
            key, value = cache.append(block, key, value)
        if last_only:
            query = query[:, :, -1:]
        dropout = self.attention_dropout if self.training else 0.0
        # The last token sees all others.
        causal = cache is None and not last_only
        mixed = F.scaled_dot_product_attention(
            query, key, value, dropout_p=dropout, is_causal=causal
        )
        # (B, H, L, D) -> (B, L, H D) -> (B, L, E)
        return self.dropout(self.projection(mixed.transpose(1, 2).flatten(2)))


class Block(nn.Module):
    """Attention and a feed-forward layer four times as wide, each after a layer norm."""

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

    def forward(
        self, x: Tensor, cache: Cache | None = None, block: int = 0, last_only: bool = False
    ) -> Tensor:
        """(B, L, E) -> (B, L, E), or (B, 1, E) if `last_only`.

        Args:
            x: the residual stream.
            cache: of the tokens before, if there is one.
            block: this block's number in the cache.
            last_only: leave out what only other tokens' outputs need.
        """
        before = x[:, -1:] if last_only else x
        x = before + self.attention(self.norm_attention(x), cache, block, last_only)
        return x + self.feed_forward(self.norm_feed_forward(x))


class Transformer(nn.Module):
    """The model of all methods."""

    def __init__(self, config: ModelConfig, inputs: Inputs) -> None:
        super().__init__()
        self.inputs = inputs
        self.images = ImageEncoder(inputs.image_size) if inputs.image_size is not None else None
        self.embed = nn.Linear(inputs.width, config.embedding)
        self.positions = nn.Embedding(inputs.horizon + 1, config.embedding)
        self.dropout = nn.Dropout(config.dropout)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.embedding)
        self.head = nn.Linear(config.embedding, inputs.n_actions)
        self.register_buffer("state_center", torch.tensor(inputs.state_center), persistent=False)
        self.register_buffer("state_scale", torch.tensor(inputs.state_scale), persistent=False)
        initialize(self, config)

    def forward(
        self, query_states: Tensor, context: Context, query_images: Tensor | None = None
    ) -> Tensor:
        """Action logits for every context length.

        Args:
            query_states: (B, d).
            context: t transitions a row, 0 <= t <= T.
            query_images: (B, s, s, 3) uint8, where states are seen as images.

        Returns:
            (B, t + 1, A): at [:, k] the answer given the first k transitions.
        """
        query = self.query_token(self.features(query_states, query_images))
        return self.answer(torch.cat([query, self.context_tokens(context)], dim=1))

    def answer(self, tokens: Tensor) -> Tensor:
        """(B, L, width) -> (B, L, A): the answer after each token."""
        return self.head(self.decode(self.embed_at(tokens, 0)))

    def last_answer(self, tokens: Tensor) -> Tensor:
        """(B, L, width) -> (B, A): the answer after the last token, without the others'."""
        return self.head(self.decode(self.embed_at(tokens, 0), last_only=True))[:, 0]

    def extend(self, token: Tensor, cache: Cache) -> Tensor:
        """(B, 1, A): the answer after one more token (B, 1, width), which joins the cache."""
        answer = self.head(self.decode(self.embed_at(token, cache.length), cache))
        cache.length += 1
        return answer

    def embed_at(self, tokens: Tensor, first: int) -> Tensor:
        """(B, L, width) -> (B, L, E): tokens and their positions `first`, `first` + 1, ..."""
        positions = torch.arange(first, first + tokens.shape[1], device=tokens.device)
        return self.dropout(self.embed(tokens) + self.positions(positions))

    def features(self, states: Tensor, images: Tensor | None = None) -> Tensor:
        """(..., F): what the model is told of states (..., d) and their images (..., s, s, 3)."""
        if self.images is None:
            return self.scale(states)
        assert images is not None, "this model sees states as images"
        heading = states[..., 2]
        # The position is in the dataset for tests; it must not get in here.
        looks = torch.stack([torch.cos(heading), -torch.sin(heading)], dim=-1)
        return torch.cat([self.images(images), looks.to(self.embed.weight.dtype)], dim=-1)

    def query_token(self, features: Tensor) -> Tensor:
        """(B, F) -> (B, 1, width): the query state, and nothing else."""
        return F.pad(features, (0, self.inputs.width - features.shape[1])).unsqueeze(1)

    def context_tokens(self, context: Context) -> Tensor:
        """(B, t, width): a context's transitions."""
        return self.transition_tokens(
            self.features(context.states, context.images),
            context.actions,
            None if self.images is not None else self.scale(context.next_states),
            context.rewards,
        )

    def transition_tokens(
        self, features: Tensor, actions: Tensor, next_features: Tensor | None, rewards: Tensor
    ) -> Tensor:
        """(B, t, width): state (B, t, F), one-hot action, next state unless None, reward (B, t)."""
        dtype = self.embed.weight.dtype
        parts = [features, F.one_hot(actions.long(), self.inputs.n_actions).to(dtype)]
        if next_features is not None:
            parts.append(next_features)
        rewards = rewards.to(dtype) * self.inputs.reward_scale
        return torch.cat([*parts, rewards.unsqueeze(-1)], dim=2)

    def decode(self, x: Tensor, cache: Cache | None = None, last_only: bool = False) -> Tensor:
        """The blocks of GPT-2: embedded tokens (B, L, E), or new ones for a cache -> (B, L, E), or
        (B, 1, E) if `last_only`."""
        for number, block in enumerate(self.blocks):
            x = block(x, cache, number, last_only and number + 1 == len(self.blocks))
        return self.norm(x)

    def scale(self, states: Tensor) -> Tensor:
        """(..., d) coordinates -> about [-2, 2]."""
        center, scale = self.state_center, self.state_scale
        assert isinstance(center, Tensor) and isinstance(scale, Tensor)
        dtype = self.embed.weight.dtype
        return ((states.to(center.dtype) - center) * scale).to(dtype)


def initialize(model: nn.Module, config: ModelConfig) -> None:
    """Weights ~ N(0, std), biases 0; std is 1 / sqrt(fan_in) (`scaled`) or 0.02 (`gpt2`).

    GPT-2's 0.02 is meant for width 768: at width 32 it leaves the signal too small to learn from.
    Only `gpt2` divides projections into the residual stream by sqrt(2 layers): with `scaled`, that
    was measured to slow learning down by about two epochs on Darkroom.
    """
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear):
            std = module.in_features**-0.5
            if config.initialization == "gpt2":
                into_residual = name.endswith(("attention.projection", "feed_forward.2"))
                std = 0.02 / math.sqrt(2 * config.layers) if into_residual else 0.02
            nn.init.normal_(module.weight, std=std)
            nn.init.zeros_(module.bias)
        elif isinstance(module, nn.Conv2d):
            # As in `scaled` whatever the transformer's: images do not pass through GPT-2's norm.
            nn.init.normal_(module.weight, std=module.weight[0].numel() ** -0.5)
            assert module.bias is not None
            nn.init.zeros_(module.bias)
        elif isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, std=0.02)
