"""Conversion of an environment's observations to float32 numbers, or to images."""

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
"""Largest number of components of an observation that is not an image."""

SMALLEST_SIDE, LARGEST_SIDE = 13, 96
"""Fewest pixels along a side of an image, which the image encoder needs, and most."""

Write = Callable[[Any, NDArray[Any]], None]
"""A function that writes a value of a space into a row."""


class Observations:
    """Conversion of an observation space's values to rows (d,) float32 or images (H, W, C) uint8.

    A Box is an image if it is uint8 from 0 to 255, with three axes, of which the first two have at
    least SMALLEST_SIDE pixels, and the last has 1, 3 or 4 channels.

    Any other Box is flattened.  Discrete and MultiDiscrete values are one-hot, as in
    gymnasium.spaces.flatten.  Parts of a Dict or a Tuple are concatenated; texts are omitted.

    Raises:
        ConfigError: a part is of another kind, there are no numbers or more than LARGEST, or an
            image has a side above LARGEST_SIDE.
    """

    def __init__(self, space: Space[Any]) -> None:
        self.frame_shape = frame_shape(space)
        """(H, W, C); None: rows are numbers."""
        self.dtype: np.dtype[Any] = np.dtype(np.float32 if self.frame_shape is None else np.uint8)
        if self.frame_shape is not None:
            self.shape: tuple[int, ...] = self.frame_shape
            self._write: Write = _image_writer(space)
            return
        size, self._write = _writer(space)
        self.shape = (size,)
        if not 0 < size <= LARGEST:
            raise ConfigError(
                f"an observation has {size:,} numbers instead of 1 to {LARGEST:,}: {space}; make "
                "it smaller by an option of the environment (ALE: obs_type: ram), or register it "
                "with a wrapper, such as gymnasium.wrappers.TransformObservation or, for an image "
                "(H, W, C) in uint8, FilterObservation and GrayscaleObservation(keep_dim=True)"
            )

    def write(self, value: Any, row: NDArray[Any]) -> None:
        """Write an observation into a row of `shape` and `dtype`.

        Raises:
            ValueError, TypeError, KeyError: the observation is not in this space.
        """
        self._write(value, row)


def frame_shape(space: Space[Any]) -> tuple[int, int, int] | None:
    """Return (H, W, C) if a space's values are images (see `Observations`), or None.

    Raises:
        ConfigError: a side of the image is above LARGEST_SIDE.
    """
    if not isinstance(space, spaces.Box) or space.dtype != np.uint8 or len(space.shape) != 3:
        return None
    height, width, channels = space.shape
    whole_range = (space.low == 0).all() and (space.high == 255).all()
    if not whole_range or min(height, width) < SMALLEST_SIDE or channels not in (1, 3, 4):
        return None
    if max(height, width) > LARGEST_SIDE:
        raise ConfigError(
            f"images of {height} x {width} pixels are above {LARGEST_SIDE} x {LARGEST_SIDE}: "
            "register the environment with the wrappers gymnasium.wrappers.ResizeObservation and "
            "GrayscaleObservation(keep_dim=True), as its additional_wrappers or in its module"
        )
    return height, width, channels


def _image_writer(space: Space[Any]) -> Write:
    def write(value: Any, row: NDArray[Any]) -> None:
        image = _of_shape(value, space)
        if image.dtype != np.uint8:  # a cast would hide values outside the space
            raise ValueError(f"observation of {image.dtype} is not in {space}")
        row[...] = image

    return write


def first_out_of_range(row: NDArray[Any]) -> str:
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
