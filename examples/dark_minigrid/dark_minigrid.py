"""A MiniGrid room with an unobserved goal, for an agent that turns and moves forward.

`env: dark_minigrid:DarkMiniGrid-v0` in a config imports this module first.  The room has few enough
states to try every action in each of them by the simulator itself.  The table of the outcomes, `P`,
makes it a tabular family: no copies of simulators, and references that are exact.
"""

import functools
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from minigrid.core.grid import Grid
from minigrid.core.mission import MissionSpace
from minigrid.core.world_object import Goal
from minigrid.minigrid_env import MiniGridEnv

HEADINGS = 4


class DarkMiniGrid(MiniGridEnv):
    """A room of `size` x `size` cells; the agent starts in the middle with a random heading.

    Actions are MiniGrid's first three: turn left, turn right, forward.  An episode ends on the
    goal, with a reward of 1.  Observations are the cell and the heading: (x, y, dx, dy).
    States are numbered by column, row and heading.
    """

    def __init__(self, goal_x: int = 1, goal_y: int = 1, size: int = 7, **others: Any) -> None:
        mission = MissionSpace(mission_func=lambda: "find the goal")
        super().__init__(mission, grid_size=size + 2, max_steps=10**6, **others)
        self.goal, self.size = (goal_x, goal_y), size
        self.action_space = spaces.Discrete(3)
        self.observation_space = spaces.Box(-1, size, (4,), np.float32)

    def _gen_grid(self, width: int, height: int) -> None:
        self.grid = Grid(width, height)
        self.grid.wall_rect(0, 0, width, height)
        self.put_obj(Goal(), *self.goal)
        self.agent_pos = (width // 2, height // 2)
        self.agent_dir = int(self.np_random.integers(HEADINGS))
        self.mission = "find the goal"

    def gen_obs(self) -> np.ndarray:
        """Return the observation, which replaces MiniGrid's view of nearby cells."""
        return np.array([*self.agent_pos, *self.dir_vec], np.float32)

    def _reward(self) -> float:
        return 1.0

    @functools.cached_property
    def P(self) -> dict[int, dict[int, list[tuple[float, int, float, bool]]]]:
        """The outcomes of each action in each state: (probability, next state, reward, end)."""
        self.reset()
        states = range(self.size**2 * HEADINGS)
        return {s: {a: [self._outcome(s, a)] for a in range(self.action_space.n)} for s in states}

    @property
    def initial_state_distrib(self) -> np.ndarray:
        """The probabilities of the first state."""
        middle = (self.size + 2) // 2
        chances = np.zeros(self.size**2 * HEADINGS)
        first = self._state((middle, middle), 0)
        chances[first : first + HEADINGS] = 1 / HEADINGS
        return chances

    def _outcome(self, state: int, action: int) -> tuple[float, int, float, bool]:
        column, row, heading = np.unravel_index(state, (self.size, self.size, HEADINGS))
        self.agent_pos, self.agent_dir = (int(column) + 1, int(row) + 1), int(heading)
        if self.agent_pos == self.goal:
            return 1.0, state, 0.0, True
        _, reward, terminated, _, _ = self.step(action)
        return 1.0, self._state(self.agent_pos, self.agent_dir), float(reward), terminated

    def _state(self, position: tuple[int, int], heading: int) -> int:
        cell = (int(position[0]) - 1) * self.size + int(position[1]) - 1
        return cell * HEADINGS + int(heading)


gymnasium.register("DarkMiniGrid-v0", DarkMiniGrid)
