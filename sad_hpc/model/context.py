"""Inputs of the model: sizes, contexts and queries."""

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
    """A: number of answers to a question."""
    horizon: int
    """T: length of the longest context."""
    state_center: tuple[float, ...]
    state_scale: tuple[float, ...]
    image_shape: tuple[int, int, int] | None = None
    """(H, W, C) of images.  States are then poses (x, z, heading), each with an image; or, if
    `state_center` is empty, the images themselves."""
    reward_scale: float = 1.0
    stateless: bool = False
    """True if there is only one state (bandits); the context's own tokens then give the answers."""
    has_ends: bool = False
    """True if a token has a flag for the end of an episode."""
    components: int | None = None
    """a: number of components of an action in [-1, 1]^a; each has its own question with A bins,
    which holds the components before it.  None: actions are numbers."""

    @classmethod
    def of_family(cls, family: TaskFamily, horizon: int | None = None) -> "Inputs":
        """Return the inputs of a family; contexts have the family's T unless `horizon` is given."""
        return cls(
            family.n_actions,
            horizon or family.config.horizon,
            family.state_center,
            family.state_scale,
            family.image_shape,
            family.reward_scale,
            stateless=isinstance(family, BanditFamily),
            has_ends=family.has_ends,
            components=family.components,
        )

    @property
    def features(self) -> int:
        """Number of features of a state: its coordinates, or image features and any heading."""
        if self.image_shape is None:
            return len(self.state_center)
        return IMAGE_FEATURES if self.states_are_images else IMAGE_FEATURES + 2

    @property
    def states_are_images(self) -> bool:
        """True if a state is an image (H, W, C)."""
        return self.image_shape is not None and not self.state_center

    @property
    def action_width(self) -> int:
        """Number of features of an action."""
        return self.n_actions if self.components is None else self.components

    @property
    def earlier(self) -> int:
        """Number of components that a question can hold: all but the last one."""
        return (self.components or 1) - 1

    @property
    def width(self) -> int:
        """Number of features of a token: state, action (one-hot or a vector), next state (without
        images only), reward, the end of the episode, and a question's earlier components."""
        next_state = self.features if self.image_shape is None else 0
        return self.features + self.action_width + next_state + 1 + self.has_ends + self.earlier

    def in_question(self, queries: "Queries") -> range:
        """Return the components that each question of `queries` stands for; one if numbers."""
        if self.components is None:
            return range(1)
        assert queries.actions is not None, "questions for vectors hold their first components"
        given = queries.actions.shape[2]
        return range(given, given + 1) if given < self.components else range(given)


@dataclass(frozen=True)
class Context:
    """A batch of contexts in the dataset's compact dtypes; t may be 0 to T."""

    states: Tensor
    """(B, t, d) integers, float32 observations or float64 poses; (B, t, H, W, C) uint8 images, or
    their features (see `SequenceModel.encoded`)"""
    actions: Tensor
    """(B, t) integers, or (B, t, a) float32"""
    rewards: Tensor
    """(B, t)"""
    next_states: Tensor | None = None
    """(B, t, d), as states; not used if the model sees images"""
    images: Tensor | None = None
    """(B, t, s, s, 3) uint8: images of the states"""
    ends: Tensor | None = None
    """(B, t) uint8: whether an episode ends with the transition"""

    @classmethod
    def of_group(cls, columns: Mapping[str, NDArray[Any]], group: str) -> "Context":
        """Make contexts of one group of a dataset, from columns such as `transitions/states`."""
        return cls.of_parts(
            {
                name.removeprefix(f"{group}/"): column
                for name, column in columns.items()
                if name.startswith(f"{group}/")
            }
        )

    @classmethod
    def of_parts(cls, parts: Mapping[str, NDArray[Any]]) -> "Context":
        """Make contexts of arrays by name."""
        return cls(**{name: torch.from_numpy(part) for name, part in parts.items()})

    @property
    def rewarded(self) -> NDArray[np.int32]:
        """Number of rewarded transitions in each context, (B,)."""
        return (self.rewards > 0).sum(dim=1, dtype=torch.int32).cpu().numpy()

    def map(self, change: Callable[[Tensor], Tensor]) -> "Context":
        """Return the context with `change` applied to every part."""
        parts = {name: part for name, part in vars(self).items() if part is not None}
        return Context(**{name: change(part) for name, part in parts.items()})

    def split(self, size: int) -> Iterator["Context"]:
        """Yield the context in parts of `size` rows."""
        for first in range(0, len(self.actions), size):
            rows = slice(first, first + size)
            yield self.map(operator.itemgetter(rows))


@dataclass(frozen=True)
class Queries:
    """Q query states for each of B contexts, each after P prefixes.

    Q = 1 and P = T + 1 is the paper's objective: one query after every prefix.
    """

    states: Tensor
    """(B, Q, ...), like those of a context"""
    prefixes: Tensor
    """(B, Q, P) int64: number of first transitions that an answer depends on"""
    images: Tensor | None = None
    """(B, Q, s, s, 3) uint8: images of the states"""
    actions: Tensor | None = None
    """(B, Q P, j): the first j components of vectors.  If j < a, the questions are for component j.
    If j = a, every question is replaced by a questions, for component i after the first i each.
    None: actions are numbers"""
