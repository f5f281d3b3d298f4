"""Darkroom: an empty room of size x size cells with an unseen goal (paper, Environmental Setup).

Actions 0..4 are +x, -x, +y, -y and stay.  Moves are clipped at the walls.  The reward is 1 if the
next state is the goal.  An episode has T steps and starts at (0, 0), or in the middle of the room
if `task.start` is `center`.
"""

from typing import Any, Literal

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray
from pydantic import Field, model_validator

from sad_hpc.experiment.config import Role, with_role
from sad_hpc.experiment.families import Horizon, TaskConfig
from sad_hpc.tasks.mdps import TabularMDPs
from sad_hpc.tasks.tabular import TabularFamily, split_numbers

MOVES = np.array([[1, 0], [-1, 0], [0, 1], [0, -1], [0, 0]], dtype=np.int64)


class DarkroomConfig(TaskConfig):
    """`task` section of Darkroom (size 7) and Darkroom-Large (size 10)."""

    family: Literal["darkroom"] = "darkroom"
    size: int = Field(7, ge=2, le=256)
    """Cells along each wall."""
    horizon: Horizon = 49
    """T: transitions in a context, and steps in an episode."""
    start: Literal["corner", "center"] = "corner"
    """Start of episodes: (0, 0), or the middle of the room as in the AD paper (9x9, T = 20)."""
    train_goals: int = with_role(Role.TASK_SPLIT, 39, ge=1)
    """Number of training goals; all others are test goals."""
    split_seed: int = with_role(Role.TASK_SPLIT, 0, ge=0)
    """Seed of the permutation that divides goals into training and test."""

    @model_validator(mode="after")
    def _check_split(self) -> "DarkroomConfig":
        goals = self.size**2
        if self.train_goals >= goals:
            raise ValueError(
                f"task.train_goals={self.train_goals} leaves no goal for test: a room of size "
                f"{self.size} has {goals} goals, so at most {goals - 1} can be for training"
            )
        return self


class Darkroom(TabularFamily):
    """Rooms that differ in their goal; a task's parameters are its goal (x, y)."""

    config_class = DarkroomConfig
    config: DarkroomConfig
    n_actions = len(MOVES)
    reward_dtype = np.uint8
    sparse_reward = True

    def __init__(self, config: DarkroomConfig) -> None:
        super().__init__(config)
        size = config.size
        self.name = {7: "darkroom", 10: "darkroom_large"}.get(size, f"darkroom_{size}x{size}")
        self.coordinates = np.array([(x, y) for x in range(size) for y in range(size)], np.uint8)
        self.start_state = {"corner": 0, "center": size // 2 * (size + 1)}[config.start]
        self.state_center = ((size - 1) / 2,) * 2
        self.state_scale = (4 / (size - 1),) * 2

    def distinct_tasks(self, split: str) -> NDArray[np.int16]:
        """Return the goals of a split, (M, 2), from a seeded permutation of all goals."""
        own = self.config
        chosen = split_numbers(self.n_states, own.train_goals, own.split_seed, split)
        return self.coordinates[chosen].astype(np.int16)

    def step(
        self, states: NDArray[Any], actions: NDArray[Any], goals: NDArray[Any]
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Step a batch of rooms.

        Args:
            states: (..., 2) cells.
            actions: (...) in 0..4.
            goals: (..., 2) cells.

        Returns:
            next states (..., 2) and rewards (...).
        """
        next_states = np.clip(states + MOVES[actions], 0, self.config.size - 1)
        rewards = (next_states == goals).all(axis=-1).astype(np.float32)
        return next_states, rewards

    def mdps(self, parameters: NDArray[np.int16]) -> TabularMDPs:
        """Return the tables of the rooms with these goals."""
        states = self.coordinates.astype(np.int64)[None, :, None, :]
        actions = np.arange(self.n_actions)[None, None, :]
        next_states, rewards = self.step(states, actions, parameters[:, None, None, :])
        numbers = self.state_numbers(next_states).astype(np.uint16)
        return TabularMDPs(np.broadcast_to(numbers, rewards.shape).copy(), rewards)

    def optimal_actions(self, parameters: NDArray[np.int16]) -> NDArray[np.bool_]:
        """Return the actions that minimize the distance to the goal, (n, S, A).

        On the goal these are staying and, at a wall, moving into the wall.
        """
        next_states = self.coordinates[self.mdps(parameters).next_states].astype(np.int64)
        distances = np.abs(next_states - parameters[:, None, None, :]).sum(axis=-1)
        return distances == distances.min(axis=-1, keepdims=True)


class DarkroomEnv(gymnasium.Env[NDArray[np.int64], np.int64]):
    """One room as a Gymnasium environment; observations are the agent's cell (x, y).

    `reset(options={"state": (x, y)})` starts in that cell instead of `start`.
    """

    metadata: dict[str, Any] = {"render_modes": []}

    def __init__(
        self,
        size: int = 7,
        horizon: int = 49,
        goal: tuple[int, int] = (6, 6),
        start: Literal["corner", "center"] = "corner",
    ) -> None:
        config = DarkroomConfig(size=size, horizon=horizon, train_goals=1, start=start)
        self._room = Darkroom(config)
        self._goal = np.array(goal, dtype=np.int64)
        if self._goal.shape != (2,) or not ((self._goal >= 0) & (self._goal < size)).all():
            raise ValueError(f"goal {goal} is not a cell of a room of size {size}")
        self.observation_space = spaces.MultiDiscrete([size, size])
        self.action_space = spaces.Discrete(len(MOVES))
        self._state = np.zeros(2, dtype=np.int64)
        self._steps = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.int64], dict[str, Any]]:
        """Start an episode; see gymnasium.Env.reset."""
        super().reset(seed=seed)
        start = self._room.coordinates[self._room.start_state]
        self._state = np.array((options or {}).get("state", start), dtype=np.int64)
        self._steps = 0
        return self._state.copy(), {}

    def step(self, action: np.int64) -> tuple[NDArray[np.int64], float, bool, bool, dict[str, Any]]:
        """Move the agent; see gymnasium.Env.step."""
        self._state, reward = self._room.step(self._state, np.asarray(action), self._goal)
        self._steps += 1
        truncated = self._steps >= self._room.config.horizon
        return self._state.copy(), float(reward), False, truncated, {}


gymnasium.register(id="sad_hpc/Darkroom-v0", entry_point="sad_hpc.tasks.darkroom:DarkroomEnv")
