"""Dark Key-to-Door (of Algorithm Distillation): find an unseen key, then the unseen door it opens.

A room of size x size cells with Darkroom's moves; episodes begin in the middle.  Reaching the key
has a reward of 1.  Reaching the door with the key has a reward of 1 and leads to an absorbing state
without rewards.  A state includes whether the agent holds the key, because the model's context is a
set of transitions without an order.  Algorithm Distillation's observations omit it.
"""

from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from sad_hpc.experiment.config import Role, with_role
from sad_hpc.experiment.families import Horizon, TaskConfig
from sad_hpc.tasks.darkroom import MOVES
from sad_hpc.tasks.mdps import TabularMDPs
from sad_hpc.tasks.tabular import TabularFamily, split_numbers

SEARCHES, CARRIES, DONE = range(3)


class KeyToDoorConfig(TaskConfig):
    """`task` section of Dark Key-to-Door."""

    family: Literal["key_to_door"] = "key_to_door"
    size: int = Field(9, ge=2, le=12)
    """Cells along each wall."""
    horizon: Horizon = 50
    """T: transitions in a context, and steps in an episode."""
    train_tasks: int = with_role(Role.TASK_SPLIT, 5184, ge=1)
    """Number of training pairs of a key and a door; all others are test pairs."""
    split_seed: int = with_role(Role.TASK_SPLIT, 0, ge=0)
    """Seed of the permutation that divides pairs into training and test."""

    @model_validator(mode="after")
    def _check_split(self) -> "KeyToDoorConfig":
        pairs = self.size**2 * (self.size**2 - 1)
        if self.train_tasks >= pairs:
            raise ValueError(
                f"task.train_tasks={self.train_tasks} leaves none for test: a room of size "
                f"{self.size} has {pairs:,} pairs of a key and a door, so at most {pairs - 1:,} "
                "can be for training"
            )
        return self


class KeyToDoor(TabularFamily):
    """Rooms that differ in key and door; a task's parameters are both cells, (x, y, x, y)."""

    config_class: ClassVar[type[TaskConfig]] = KeyToDoorConfig
    config: KeyToDoorConfig
    name = "key_to_door"
    title = "Dark Key-to-Door"
    n_actions = len(MOVES)
    reward_dtype = np.uint8
    sparse_reward = True

    def __init__(self, config: KeyToDoorConfig) -> None:
        super().__init__(config)
        size = config.size
        self._cells = np.array([(x, y) for x in range(size) for y in range(size)])
        without_key, with_key = (
            np.insert(self._cells, 2, phase, axis=1) for phase in (SEARCHES, CARRIES)
        )
        every = np.concatenate([without_key, with_key, [[0, 0, DONE]]])
        self.coordinates = every.astype(np.uint8)
        """(S, 3): x, y and whether the key is held; the last row is the state after the door."""
        self.start_state = size // 2 * (size + 1)
        self.state_center = ((size - 1) / 2, (size - 1) / 2, 1.0)
        self.state_scale = (4 / (size - 1), 4 / (size - 1), 2.0)

    def distinct_tasks(self, split: str) -> NDArray[np.int16]:
        """Return the pairs of a split, (M, 4), from a seeded permutation of all pairs."""
        cells = len(self._cells)
        pairs = np.array(
            [(key, door) for key in range(cells) for door in range(cells) if key != door]
        )
        own = self.config
        chosen = split_numbers(len(pairs), own.train_tasks, own.split_seed, split)
        return self._cells[pairs[chosen]].reshape(-1, 4).astype(np.int16)

    def mdps(self, parameters: NDArray[np.int16]) -> TabularMDPs:
        """Return the tables of the rooms with these keys and doors."""
        moved, keys, doors = self._moved(), *self._keys_and_doors(parameters)
        cells, done = len(self._cells), self.n_states - 1
        finds, opens = moved == keys, moved == doors
        shape = (len(parameters), self.n_states, self.n_actions)
        next_states, rewards = np.full(shape, done, np.uint16), np.zeros(shape, np.float32)
        next_states[:, :cells] = moved + cells * finds
        next_states[:, cells:done] = np.where(opens, done, cells + moved)
        rewards[:, :cells], rewards[:, cells:done] = finds, opens
        return TabularMDPs(next_states, rewards)

    def optimal_actions(self, parameters: NDArray[np.int16]) -> NDArray[np.bool_]:
        """Return the actions that minimize the distance to the key, or with the key to the door.

        All actions are optimal in the last state.

        Returns:
            (n, S, A).
        """
        after = self._cells[self._moved()]
        distances = np.zeros((len(parameters), self.n_states, self.n_actions), np.int64)
        for phase, target in enumerate(self._keys_and_doors(parameters)):
            here = slice(phase * len(self._cells), (phase + 1) * len(self._cells))
            distances[:, here] = np.abs(after - self._cells[target]).sum(axis=-1)
        return distances == distances.min(axis=-1, keepdims=True)

    def _moved(self) -> NDArray[np.int64]:
        """Return the number of the cell that an action leads to, (cells, A)."""
        moved = np.clip(self._cells[:, None] + MOVES, 0, self.config.size - 1)
        return self._numbers(moved)

    def _keys_and_doors(self, parameters: NDArray[np.int16]) -> tuple[NDArray[np.int64], ...]:
        """Return the cell numbers of keys and of doors, each (n, 1, 1)."""
        cells = self._numbers(parameters.astype(np.int64).reshape(-1, 2, 2))
        return tuple(cells.T[:, :, None, None])

    def _numbers(self, cells: NDArray[np.int64]) -> NDArray[np.int64]:
        """Convert cells (..., 2) to cell numbers (...)."""
        return cells[..., 0] * self.config.size + cells[..., 1]
