"""Inputs of the model: their sizes, contexts, and the queries after them."""

import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sad_hpc.model.image_encoder import IMAGE_FEATURES
from sad_hpc.tasks.bandit import BanditFamily
from sad_hpc.tasks.base import TaskFamily


@dataclass(frozen=True)
class Inputs:
    """Sizes of a task family's inputs, and the scaling of states and rewards."""

    n_actions: int
    """A: how many answers a question has."""
    horizon: int
    """T: the longest context."""
    state_center: tuple[float, ...]
    state_scale: tuple[float, ...]
    image_size: int | None = None
    """Pixels along each side of a state's image; states are poses (x, z, heading) then."""
    reward_scale: float = 1.0
    stateless: bool = False
    """Whether there is but one state (bandits): answers are read off the context's own tokens."""
    has_ends: bool = False
    """Whether a transition says that its episode ends."""
    components: int | None = None
    """a: of an action, where it is a vector in [-1, 1]^a; each is asked for by a question of its
    own, with A bins to choose from.  None: actions are numbers."""

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
            stateless=isinstance(family, BanditFamily),
            has_ends=family.has_ends,
            components=family.components,
        )

    @property
    def features(self) -> int:
        """Numbers that describe a state: its coordinates, or image and heading."""
        return len(self.state_center) if self.image_size is None else IMAGE_FEATURES + 2

    @property
    def action_width(self) -> int:
        """Numbers that describe an action."""
        return self.n_actions if self.components is None else self.components

    @property
    def width(self) -> int:
        """Numbers in a token: state, action (one-hot, or a vector), next state (unless seen as
        images), reward, and whether the episode ended."""
        next_state = self.features if self.image_size is None else 0
        return self.features + self.action_width + next_state + 1 + self.has_ends


@dataclass(frozen=True)
class Context:
    """A batch of contexts in the dataset's compact dtypes; t may be 0 to T."""

    states: Tensor
    """(B, t, d) integers, float32 observations, or float64 poses"""
    actions: Tensor
    """(B, t) integers, or (B, t, a) float32"""
    rewards: Tensor
    """(B, t)"""
    next_states: Tensor
    """(B, t, d), as states"""
    images: Tensor | None = None
    """(B, t, s, s, 3) uint8: images of the states"""
    ends: Tensor | None = None
    """(B, t) uint8: whether an episode ends with the transition"""

    @classmethod
    def of_group(cls, columns: Mapping[str, NDArray[Any]], group: str) -> "Context":
        """The contexts of one group of a dataset, from columns such as `context/states`."""
        return cls.of_parts(
            {
                name.removeprefix(f"{group}/"): column
                for name, column in columns.items()
                if name.startswith(f"{group}/")
            }
        )

    @classmethod
    def of_parts(cls, parts: Mapping[str, NDArray[Any]]) -> "Context":
        """The contexts of arrays, by name."""
        return cls(**{name: torch.from_numpy(part) for name, part in parts.items()})

    @property
    def rewarded(self) -> NDArray[np.int32]:
        """Rewarded transitions in each context, (B,)."""
        return (self.rewards > 0).sum(dim=1, dtype=torch.int32).cpu().numpy()

    def map(self, change: Callable[[Tensor], Tensor]) -> "Context":
        """The context with every part changed in the same way."""
        parts = {name: part for name, part in vars(self).items() if part is not None}
        return Context(**{name: change(part) for name, part in parts.items()})

    def split(self, size: int) -> Iterator["Context"]:
        """The context in parts of `size` rows."""
        for first in range(0, len(self.actions), size):
            rows = slice(first, first + size)
            yield self.map(operator.itemgetter(rows))


@dataclass(frozen=True)
class Queries:
    """Q states behind each of B contexts; each is asked P times, after prefixes of its own.

    Q = 1 and P = T + 1 is the paper's objective: one query, asked after every prefix.
    """

    states: Tensor
    """(B, Q, d) in the dataset's dtype"""
    prefixes: Tensor
    """(B, Q, P) int64: how many transitions, the first ones, the answer may look at"""
    images: Tensor | None = None
    """(B, Q, s, s, 3) uint8: images of the states"""
