"""Small stochastic families with ends, for tests."""

import gymnasium
import numpy as np

from sad_hpc.experiment.families import TaskConfig
from sad_hpc.tasks.mdps import StochasticMDPs, tables_of
from sad_hpc.tasks.tabular import StochasticFamily

MAPS = [
    ["SFFF", "FHFH", "FFFH", "HFFG"],
    ["SFFF", "FFFH", "HFFF", "FFHG"],
    ["FSFF", "FHFF", "FFFF", "GFHF"],
    ["SFHF", "FFFF", "FHFF", "FFFG"],
]


def lake(number: int) -> gymnasium.Env:
    """A slippery FrozenLake of one of the maps."""
    return gymnasium.make("FrozenLake-v1", desc=MAPS[number], is_slippery=True).unwrapped


class LakeConfig(TaskConfig):
    """`task` section of the lakes."""

    family: str = "lakes"
    horizon: int = 30


class Lakes(StochasticFamily):
    """Slippery FrozenLakes; a task's parameter is the number of its map, the last is for test."""

    config_class = LakeConfig
    name = "lakes"
    n_actions = 4
    n_outcomes = 3
    sparse_reward = True
    reward_dtype = np.uint8
    coordinates = np.array([(x, y) for x in range(4) for y in range(4)], np.uint8)
    state_center, state_scale = (1.5, 1.5), (4 / 3, 4 / 3)

    def distinct_tasks(self, split):
        return np.array([[0], [1], [2]] if split == "train" else [[3]], np.int16)

    def outcomes_of(self, parameters):
        env = lake(int(parameters[0]))
        return env.P, np.asarray(env.initial_state_distrib)


LAKES = Lakes(LakeConfig())


def random_tables(certain: bool = False) -> StochasticMDPs:
    """Two dense tasks of 6 states and 3 actions with gains, costs and ends.

    In each task the state 5 only ends episodes, and in the second task the state 4 is never seen.
    """
    generator = np.random.default_rng(3)
    tasks = []
    for hidden in (5, 4):
        task: dict = {}
        for state in range(6):
            task[state] = {}
            for action in range(3):
                after = [*generator.permutation(hidden)[: 1 if certain else 3].tolist(), 5]
                chances = generator.dirichlet(np.ones(len(after)))
                rewards = generator.integers(-2, 4, len(after)) / 2
                if certain:
                    after, chances, rewards = after[:1], np.ones(1), rewards[:1]
                task[state][action] = [
                    (p, s, r, s == 5) for p, s, r in zip(chances, after, rewards, strict=True)
                ]
        tasks.append(task)
    starts = [np.array([0.5, 0.25, 0.25, 0, 0, 0]), np.array([0, 1.0, 0, 0, 0, 0])]
    return tables_of(tasks, starts)
