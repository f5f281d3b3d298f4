"""Conversion of an environment's observations to float32 numbers."""

import math
from collections.abc import Callable, Mapping
from functools import singledispatch
from typing import Any

import numpy as np
from gymnasium import Space, spaces
from numpy.typing import NDArray

from sad_hpc.errors import ConfigError
from sad_hpc.experiment.numbers import NOT_IN_RANGE, in_range

LARGEST = 1024
"""Largest number of components of an observation; larger ones would need an image encoder."""

Write = Callable[[Any, NDArray[np.float32]], None]
"""A function that writes a value of a space into a row of numbers."""


class Observations:
    """Conversion of an observation space's values to rows (d,) float32.

    A Box is flattened.  Discrete and MultiDiscrete values are one-hot, as in
    gymnasium.spaces.flatten.  Parts of a Dict or a Tuple are concatenated; texts are omitted.

    Raises:
        ConfigError: a part is of another kind, or there are no numbers or more than LARGEST.
    """

    def __init__(self, space: Space[Any]) -> None:
        self.size, self._write = _writer(space)
        if not 0 < self.size <= LARGEST:
            raise ConfigError(
                f"an observation has {self.size:,} numbers instead of 1 to {LARGEST:,}: "
                f"{space}; make it smaller by an option of the environment (ALE: obs_type: ram), "
                "or register it with a wrapper, such as gymnasium.wrappers.TransformObservation"
            )

    def write(self, value: Any, row: NDArray[np.float32]) -> None:
        """Write an observation into a row (d,).

        Raises:
            ValueError, TypeError, KeyError: the observation is not in this space.
        """
        self._write(value, row)


def first_out_of_range(row: NDArray[np.float32]) -> str:
    """Describe the first number of a row that is not `in_range`."""
    column = np.flatnonzero(~in_range(row))[0]
    return f"its observation[{column}] is {row[column]:g}, {NOT_IN_RANGE}"


@singledispatch
def _writer(space: Space[Any]) -> tuple[int, Write]:
    """Return how many numbers a space has, and the function that writes them."""
    if space.dtype == np.dtype(str):  # a text space that is not gymnasium's (MiniGrid's missions)
        return 0, _nothing
    raise ConfigError(
        f"observations of {space} cannot be made into numbers; register the environment with a "
        "wrapper that makes them a Box, such as gymnasium.wrappers.TransformObservation"
    )


@_writer.register
def _text(space: spaces.Text) -> tuple[int, Write]:
    return 0, _nothing


def _nothing(value: Any, row: NDArray[np.float32]) -> None:
    """Write no numbers for a text."""


@_writer.register(spaces.Box)
@_writer.register(spaces.MultiBinary)
def _array(space: spaces.Box | spaces.MultiBinary) -> tuple[int, Write]:
    # Without a cast to the space's dtype, which would hide values outside the space.
    def write(value: Any, row: NDArray[np.float32]) -> None:
        row.reshape(space.shape)[...] = _of_shape(value, space)

    return math.prod(space.shape), write


@_writer.register(spaces.Discrete)
@_writer.register(spaces.MultiDiscrete)
def _one_hot(space: spaces.Discrete | spaces.MultiDiscrete) -> tuple[int, Write]:
    choices = np.reshape(space.n if isinstance(space, spaces.Discrete) else space.nvec, -1)
    offsets = np.cumsum(choices) - choices

    def write(value: Any, row: NDArray[np.float32]) -> None:
        chosen = np.reshape(_of_shape(value, space) - space.start, -1)
        if (chosen < 0).any() or (chosen >= choices).any():
            raise ValueError(f"observation {value} is not in {space}")
        row[:] = 0
        row[offsets + chosen] = 1

    return int(choices.sum()), write


def _of_shape(value: Any, space: Space[Any]) -> NDArray[Any]:
    array = np.asarray(value)
    if array.shape != space.shape:
        raise ValueError(f"observation of shape {array.shape} is not in {space}")
    return array


@_writer.register(spaces.Dict)
@_writer.register(spaces.Tuple)
def _composed(space: spaces.Dict | spaces.Tuple) -> tuple[int, Write]:
    named: Mapping[Any, Space[Any]] = (
        space.spaces if isinstance(space, spaces.Dict) else dict(enumerate(space.spaces))
    )
    parts, size = [], 0
    for name, part in named.items():
        width, write_part = _writer(part)
        parts.append((name, slice(size, size + width), write_part))
        size += width

    def write(value: Any, row: NDArray[np.float32]) -> None:
        for name, columns, write_part in parts:
            write_part(value[name], row[columns])

    return size, write
