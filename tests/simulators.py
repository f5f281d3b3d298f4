"""A small family of simulators with known distributions: rooms of Darkroom, stepped by tables."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sad_hpc.tasks.darkroom import Darkroom, DarkroomConfig
from sad_hpc.tasks.simulated import SimulatedFamily, Simulators

HORIZON = 12


class Rooms(SimulatedFamily):
    """Rooms of 3 x 3 cells as simulators, every state possible from the start.

    Args:
        noise: standard deviation of what is added to rewards.
        ends: whether an episode ends on the goal.
    """

    n_actions, sparse_reward = 5, True
    name = "rooms"
    state_center, state_scale = (1.0, 1.0), (2.0, 2.0)

    def __init__(self, noise: float = 0.0, ends: bool = False) -> None:
        super().__init__(DarkroomConfig(size=3, horizon=HORIZON, train_goals=6))
        self.noise, self.ends, self.sparse_reward = noise, ends, noise == 0
        self.room = Darkroom(self.config)

    @property
    def simulator(self) -> "type[RoomSimulators]":
        """Class of the simulators."""
        return RoomSimulators

    def draw_tasks(
        self, split: str, count: int, generator: np.random.Generator
    ) -> NDArray[np.float64]:
        """Goals of the split."""
        return generator.choice(self.room.distinct[split], count).astype(np.float64)

    def simulators(
        self, parameters: NDArray[np.float64], generator: np.random.Generator
    ) -> "RoomSimulators":
        """Agents anywhere but on the goal."""
        simulators = self.simulator(self, parameters, np.zeros_like(parameters), generator)
        simulators.start(np.arange(len(parameters)), generator)
        return simulators


class RoomSimulators(Simulators):
    """n rooms of a family, with agents in cells (n, 2)."""

    def __init__(
        self,
        family: Rooms,
        goals: NDArray[np.float64],
        cells: NDArray[np.float64],
        generator: np.random.Generator,
    ) -> None:
        self._family, self.goals, self._cells = family, goals, cells
        self._generator = generator
        self.observations, self.ended = cells.astype(np.float32), np.zeros(len(goals), np.bool_)

    def start(self, rows: NDArray[np.int64], generator: np.random.Generator) -> None:
        """Implement `Simulators.start`."""
        cells = self._cells.copy()
        while rows.size:
            cells[rows] = generator.integers(3, size=(len(rows), 2))
            rows = rows[(cells[rows] == self.goals[rows]).all(axis=1)] if rows.size else rows
        self._set(cells, (cells == self.goals).all(axis=1) & self._family.ends)

    def step(self, actions: NDArray[Any]) -> NDArray[np.float32]:
        """Implement `Simulators.step`."""
        cells, rewards = self._family.room.step(self._cells, actions, self.goals)
        cells = np.where(self.ended[:, None], self._cells, cells)
        rewards = rewards + self._family.noise * self._generator.standard_normal(len(rewards))
        rewards = np.where(self.ended, 0, rewards)
        self._set(cells, (cells == self.goals).all(axis=1) & self._family.ends)
        return rewards.astype(np.float32)

    def copied(self, rows: NDArray[np.int64], generator: np.random.Generator) -> "RoomSimulators":
        """Implement `Simulators.copied`."""
        own = generator.spawn(1)[0]
        copies = type(self)(self._family, self.goals[rows], self._cells[rows], own)
        copies.ended = self.ended[rows]
        return copies

    def _set(self, cells: NDArray[np.float64], ended: NDArray[np.bool_]) -> None:
        self._cells, self.ended = cells, ended
        self.observations = cells.astype(np.float32)
