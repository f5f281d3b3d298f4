"""Conversion between the model's actions and those of an environment.

A model's action is a number, or a vector of components in [-1, 1].  A component of n choices has n
intervals of equal width, so bins whose number is a multiple of n each stand for one choice.
"""

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, TypeAlias

import numpy as np
from gymnasium import Space, spaces
from numpy.typing import NDArray

from sad_hpc.errors import ConfigError

MOST_BINS = 256
"""Largest number of bins that the choices of all components may need together."""

Counted: TypeAlias = spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary
"""Spaces of numbers of choices."""


class Actions(ABC):
    """Conversion of a model's actions to those of an environment."""

    count: int = 0
    """Number of actions; 0: actions are vectors."""
    size: int = 0
    """Number of components of a vector; 0: actions are numbers."""

    def bins(self, least: int) -> int:
        """Return the number of bins of each component of a vector.

        Args:
            least: the least number of bins of a continuous component.
        """
        return least

    @abstractmethod
    def drawn(self, count: int, generator: np.random.Generator) -> NDArray[Any]:
        """Draw uniform actions of models: (count,) numbers or (count, a) vectors."""

    @abstractmethod
    def taken(self, action: Any) -> Any:
        """Convert an action of a model to an argument of the environment's `step`."""

    @abstractmethod
    def given(self, action: Any) -> Any:
        """Convert an action of the environment to one of a model; the inverse of `taken`.

        Numbers outside the bounds of a Box are clipped.

        Raises:
            ValueError, TypeError, KeyError: the action is not in the space.
        """


class Choices(Actions):
    """Numbers 0..n-1 for the n actions of a Discrete space with any `start`."""

    def __init__(self, space: spaces.Discrete) -> None:
        self.count, self._start, self._space = int(space.n), space.start, space

    def drawn(self, count: int, generator: np.random.Generator) -> NDArray[np.int64]:
        """Implement `Actions.drawn`."""
        return generator.integers(self.count, size=count)

    def taken(self, action: np.integer[Any]) -> np.int64:
        """Implement `Actions.taken`."""
        return np.int64(self._start + action)

    def given(self, action: Any) -> np.int64:
        """Implement `Actions.given`."""
        return np.int64(_counted(action, self._space)[0])


class OfComponents(Actions):
    """Vectors (a,) float32 in [-1, 1]."""

    def drawn(self, count: int, generator: np.random.Generator) -> NDArray[np.float32]:
        """Implement `Actions.drawn`."""
        return generator.uniform(-1, 1, size=(count, self.size)).astype(np.float32)


class Vectors(OfComponents):
    """Vectors (a,) float32 in [-1, 1], scaled to the bounds of a Box and clipped."""

    def __init__(self, space: spaces.Box) -> None:
        if not space.is_bounded("both"):
            raise ConfigError(
                f"actions without bounds: {space}; register the environment with a wrapper that "
                "adds bounds, such as gymnasium.wrappers.RescaleAction"
            )
        self.size = int(np.prod(space.shape))
        if self.size == 0:
            raise ConfigError(f"actions without a component: {space}; give it at least one")
        self._low, self._high = space.low, space.high
        # In float64, because the difference of two float32 bounds can overflow.
        self._half = (space.high.astype(np.float64) - space.low) / 2

    def taken(self, action: NDArray[np.floating[Any]]) -> NDArray[np.floating[Any]]:
        """Implement `Actions.taken`."""
        shaped = action.reshape(*action.shape[:-1], *self._low.shape)
        moved = self._low + (shaped + 1.0) * self._half
        return np.clip(moved, self._low, self._high).astype(self._low.dtype)

    def given(self, action: Any) -> NDArray[np.float32]:
        """Implement `Actions.given`."""
        numbers = np.asarray(action, np.float64)
        if numbers.shape != self._low.shape or not np.isfinite(numbers).all():
            raise ValueError(f"action {action} does not have the shape {self._low.shape}")
        half = np.where(self._half > 0, self._half, np.inf)  # equal bounds leave no choice
        return np.clip((numbers - self._low) / half - 1, -1, 1).astype(np.float32).ravel()


class Composite(OfComponents):
    """Vectors (a,) in [-1, 1] for the parts of a space in their order, nested ones as well.

    Parts are Box, Discrete, MultiDiscrete and MultiBinary, in any Tuple or Dict.
    """

    def __init__(self, space: Space[Any]) -> None:
        self._space = space
        self._boxes = {id(part): Vectors(part) for part in parts(space) if _is_box(part)}
        counts = [choices_of(part).ravel() for part in parts(space) if isinstance(part, Counted)]
        self.size = sum(map(len, counts)) + sum(box.size for box in self._boxes.values())
        self._common = math.lcm(*(int(n) for each in counts for n in each))
        if self._common > MOST_BINS:
            raise ConfigError(
                f"actions of {space}: the choices of its components need {self._common:,} bins, "
                f"above {MOST_BINS}; register the environment with a wrapper that changes them"
            )

    def bins(self, least: int) -> int:
        """Implement `Actions.bins`: a multiple of each component's number of choices."""
        wanted = least if self._boxes else 1
        return self._common * math.ceil(wanted / self._common)

    def taken(self, action: NDArray[np.floating[Any]]) -> Any:
        """Implement `Actions.taken`."""
        return self._value(self._space, iter(action))

    def given(self, action: Any) -> NDArray[np.float32]:
        """Implement `Actions.given`: a choice is the middle of its interval."""
        return np.concatenate(list(self._numbers(self._space, action))).astype(np.float32)

    def _numbers(self, space: Space[Any], value: Any) -> Iterator[NDArray[np.floating[Any]]]:
        """Yield the numbers of each part of a value."""
        if isinstance(space, spaces.Dict):
            for name, member in space.items():
                yield from self._numbers(member, value[name])
        elif isinstance(space, spaces.Tuple):
            for member, part in zip(space, value, strict=True):
                yield from self._numbers(member, part)
        elif id(space) in self._boxes:
            yield self._boxes[id(space)].given(value)
        else:
            yield (2 * _counted(value, space) + 1) / choices_of(space).ravel() - 1

    def _value(self, space: Space[Any], numbers: Iterator[Any]) -> Any:
        """Return the element of a space for the next numbers."""
        if isinstance(space, spaces.Dict):
            return {name: self._value(member, numbers) for name, member in space.items()}
        if isinstance(space, spaces.Tuple):
            return tuple(self._value(member, numbers) for member in space)
        box = self._boxes.get(id(space))
        size = choices_of(space).size if box is None else box.size
        own = np.fromiter(itertools.islice(numbers, size), np.float32, size)
        return chosen(space, own) if box is None else box.taken(own)


def parts(space: Space[Any]) -> Iterator[Space[Any]]:
    """Yield the parts of nested spaces that are no Tuple and no Dict, in their order."""
    if isinstance(space, spaces.Dict):
        for member in space.values():
            yield from parts(member)
    elif isinstance(space, spaces.Tuple):
        for member in space:
            yield from parts(member)
    else:
        yield space


def choices_of(space: Space[Any]) -> NDArray[np.int64]:
    """Return the number of choices of each component, in the space's shape."""
    if isinstance(space, spaces.Discrete):
        return np.array([space.n], np.int64)
    if isinstance(space, spaces.MultiBinary):
        return np.full(space.shape, 2, np.int64)
    assert isinstance(space, spaces.MultiDiscrete)
    return space.nvec.astype(np.int64)


def chosen(space: Space[Any], numbers: NDArray[np.floating[Any]]) -> Any:
    """Return the element of a `Counted` space for numbers in [-1, 1]."""
    counts = choices_of(space)
    places = np.floor((numbers.reshape(counts.shape).astype(np.float64) + 1) / 2 * counts)
    whole = np.clip(places, 0, counts - 1).astype(np.int64)
    if isinstance(space, spaces.Discrete):
        return np.int64(space.start + whole[0])
    start = space.start if isinstance(space, spaces.MultiDiscrete) else 0
    return (start + whole).astype(space.dtype)


def _counted(value: Any, space: Space[Any]) -> NDArray[np.int64]:
    """Return the numbers from 0 of an element of a `Counted` space, (a,).

    Raises:
        ValueError: it is not in the space.
    """
    start = 0 if isinstance(space, spaces.MultiBinary) else space.start
    numbers, counts = np.asarray(value) - start, choices_of(space)
    if numbers.size != counts.size or not np.isin(numbers, np.arange(counts.max())).all():
        raise ValueError(f"action {value} is not in {space}")
    if (numbers.reshape(counts.shape) >= counts).any():
        raise ValueError(f"action {value} is not in {space}")
    return numbers.ravel().astype(np.int64)


def _is_box(space: Space[Any]) -> bool:
    return isinstance(space, spaces.Box) and np.issubdtype(space.dtype, np.floating)


def actions_of(space: Space[Any]) -> Actions:
    """Return the conversion of actions for a space.

    Raises:
        ConfigError: the space has a Box without bounds or of integers, or a part of another kind.
    """
    if isinstance(space, spaces.Discrete):
        return Choices(space)
    if isinstance(space, spaces.Box) and _is_box(space):
        return Vectors(space)
    other = [part for part in parts(space) if not _is_box(part) and not isinstance(part, Counted)]
    if other or not list(parts(space)):
        raise ConfigError(
            f"actions of {space}: only Discrete, Box (of floats), MultiDiscrete, MultiBinary, and "
            "Tuple and Dict of these are supported; register the environment with a wrapper that "
            "converts them, such as gymnasium.wrappers.TransformAction"
        )
    return Composite(space)
