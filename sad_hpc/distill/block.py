"""What the kernels make of one block of tasks: arrays for a dataset file, and counts."""

from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray


@dataclass(frozen=True)
class Block:
    """n tasks with everything that a dataset file holds of them."""

    arrays: dict[str, NDArray[Any]]
    """Dataset name (such as `context/states`) -> array whose first axis is the task."""
    transitions: dict[str, int]
    """Environment transitions spent, by purpose."""
