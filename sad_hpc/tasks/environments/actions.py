"""Conversion between the model's actions and those of an environment."""

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from gymnasium import Space, spaces
from numpy.typing import NDArray

from sad_hpc.errors import ConfigError


class Actions(ABC):
    """Conversion of a model's actions to those of an environment."""

    @abstractmethod
    def drawn(self, count: int, generator: np.random.Generator) -> NDArray[Any]:
        """Draw uniform actions of models: (count,) numbers or (count, a) vectors."""

    @abstractmethod
    def taken(self, action: Any) -> Any:
        """Convert an action of a model to an argument of the environment's `step`."""


class Choices(Actions):
    """Numbers 0..n-1 for the n actions of a Discrete space with any `start`."""

    def __init__(self, space: spaces.Discrete) -> None:
        self.count, self._start = int(space.n), space.start

    def drawn(self, count: int, generator: np.random.Generator) -> NDArray[np.int64]:
        """Implement `Actions.drawn`."""
        return generator.integers(self.count, size=count)

    def taken(self, action: np.integer[Any]) -> np.int64:
        """Implement `Actions.taken`."""
        return np.int64(self._start + action)


class Vectors(Actions):
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

    def drawn(self, count: int, generator: np.random.Generator) -> NDArray[np.float32]:
        """Implement `Actions.drawn`."""
        return generator.uniform(-1, 1, size=(count, self.size)).astype(np.float32)

    def taken(self, action: NDArray[np.floating[Any]]) -> NDArray[np.floating[Any]]:
        """Implement `Actions.taken`."""
        moved = self._low + (action.reshape(self._low.shape) + 1.0) * self._half
        return np.clip(moved, self._low, self._high).astype(self._low.dtype)


def actions_of(space: Space[Any]) -> Actions:
    """Return the conversion of actions for a space.

    Raises:
        ConfigError: the space is a Box without bounds or of integers, or of another kind.
    """
    if isinstance(space, spaces.Discrete):
        return Choices(space)
    if isinstance(space, spaces.Box) and np.issubdtype(space.dtype, np.floating):
        return Vectors(space)
    raise ConfigError(
        f"actions of {space}: only Discrete and Box (of floats) are supported; register the "
        "environment with a wrapper that converts them, such as gymnasium.wrappers.TransformAction"
    )
