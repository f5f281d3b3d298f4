"""A MiniGrid room with an unobserved goal, for an agent that turns and moves forward.

`env: dark_minigrid:DarkMiniGrid-v0` in a config imports this module first.
"""

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from minigrid.core.grid import Grid
from minigrid.core.mission import MissionSpace
from minigrid.core.world_object import Goal
from minigrid.minigrid_env import MiniGridEnv


class DarkMiniGrid(MiniGridEnv):
    """A room of `size` x `size` cells; the agent starts in the middle with a random heading.

    Actions are MiniGrid's first three: turn left, turn right, forward.  An episode ends on the
    goal, with a reward of 1.  Observations are the cell and the heading: (x, y, dx, dy).
    """

    def __init__(self, goal_x: int = 1, goal_y: int = 1, size: int = 7, **others: Any) -> None:
        mission = MissionSpace(mission_func=lambda: "find the goal")
        super().__init__(mission, grid_size=size + 2, max_steps=10**6, **others)
        self.goal = goal_x, goal_y
        self.action_space = spaces.Discrete(3)
        self.observation_space = spaces.Box(-1, size, (4,), np.float32)

    def _gen_grid(self, width: int, height: int) -> None:
        self.grid = Grid(width, height)
        self.grid.wall_rect(0, 0, width, height)
        self.put_obj(Goal(), *self.goal)
        self.agent_pos = (width // 2, height // 2)
        self.agent_dir = int(self.np_random.integers(4))
        self.mission = "find the goal"

    def gen_obs(self) -> np.ndarray:
        """Return the observation, which replaces MiniGrid's view of nearby cells."""
        return np.array([*self.agent_pos, *self.dir_vec], np.float32)

    def _reward(self) -> float:
        return 1.0


gymnasium.register("DarkMiniGrid-v0", DarkMiniGrid)
