"""Darkroom with permuted actions (of the DPT paper): a fixed goal, and unknown effects of actions.

The goal is the corner opposite the start.  A task is a permutation of Darkroom's five actions.
Everything else is as in Darkroom.  The model must infer the effect of each action from the context.
"""

from itertools import permutations
from math import factorial
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from sad_hpc.experiment.config import Role, with_role
from sad_hpc.experiment.families import Horizon, TaskConfig
from sad_hpc.tasks.darkroom import MOVES, Darkroom, DarkroomConfig
from sad_hpc.tasks.mdps import TabularMDPs
from sad_hpc.tasks.tabular import TabularFamily, split_numbers

N_PERMUTATIONS = factorial(len(MOVES))


class PermutedDarkroomConfig(TaskConfig):
    """`task` section of Darkroom with permuted actions."""

    family: Literal["permuted_darkroom"] = "permuted_darkroom"
    size: int = Field(7, ge=2, le=256)
    """Cells along each wall."""
    horizon: Horizon = 49
    """T: transitions in a context, and steps in an episode."""
    train_permutations: int = with_role(Role.TASK_SPLIT, 96, ge=1, lt=N_PERMUTATIONS)
    """Number of training permutations; the others of all 120 are test permutations."""
    split_seed: int = with_role(Role.TASK_SPLIT, 0, ge=0)
    """Seed of the permutation that divides the tasks into training and test."""


class PermutedDarkroom(TabularFamily):
    """Rooms that differ in their actions; a task's parameters are the move of each action, (5,)."""

    config_class: ClassVar[type[TaskConfig]] = PermutedDarkroomConfig
    config: PermutedDarkroomConfig
    n_actions = len(MOVES)
    start_state = 0
    reward_dtype = np.uint8
    sparse_reward = True
    name = "permuted_darkroom"

    def __init__(self, config: PermutedDarkroomConfig) -> None:
        super().__init__(config)
        self._room = Darkroom(DarkroomConfig(size=config.size, train_goals=1))
        self._goal = self._room.coordinates[-1:].astype(np.int16)
        self.coordinates = self._room.coordinates
        self.state_center, self.state_scale = self._room.state_center, self._room.state_scale

    def distinct_tasks(self, split: str) -> NDArray[np.int16]:
        """Return the permutations of a split, (M, 5)."""
        every = np.array(list(permutations(range(self.n_actions))), np.int16)
        own = self.config
        return every[split_numbers(len(every), own.train_permutations, own.split_seed, split)]

    def mdps(self, parameters: NDArray[np.int16]) -> TabularMDPs:
        """Return Darkroom's tables with permuted actions."""
        room = self._room.mdps(self._goal)
        moves = parameters[:, None, :].astype(np.int64)
        states = np.arange(self.n_states)[None, :, None]
        return TabularMDPs(room.next_states[0][states, moves], room.rewards[0][states, moves])

    def optimal_actions(self, parameters: NDArray[np.int16]) -> NDArray[np.bool_]:
        """Return Darkroom's optimal actions, permuted, (n, S, A)."""
        optimal = self._room.optimal_actions(self._goal)[0]
        states = np.arange(self.n_states)[None, :, None]
        return optimal[states, parameters[:, None, :].astype(np.int64)]
