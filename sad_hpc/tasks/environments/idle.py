"""Detection of task parameters without an effect on random play."""

import numpy as np
from numpy.typing import NDArray

from sad_hpc.tasks.environments.config import EnvironmentConfig
from sad_hpc.tasks.environments.replay import Episode, Recorder, first_difference

VALUES, EPISODES = 4, 3
"""Numbers of alternative values per parameter and of episodes per value."""


def idle_parameters(config: EnvironmentConfig) -> list[str]:
    """Return the names of parameters whose change alone does not change random play.

    An environment can derive values from an attribute before the attribute is set, or ignore a
    keyword.  All tasks are then the same and contexts have no information.  A parameter that random
    play rarely depends on, such as a distant goal, is also listed.

    Raises:
        ConfigError: the environment fails.
    """
    rows = config.laws.draw("train", 1 + VALUES, np.random.default_rng(0))
    unchanged = _episodes(config, rows[0])
    idle = []
    for place, name in enumerate(config.laws.values(rows[0])):
        others = np.repeat(rows[:1], VALUES, axis=0)
        others[:, place] = rows[1:, place]
        changed = others[others[:, place] != rows[0, place]]
        if len(changed) and all(_alike(_episodes(config, row), unchanged) for row in changed):
            idle.append(name)
    return idle


def _episodes(config: EnvironmentConfig, row: NDArray[np.float64]) -> list[Episode]:
    recorder = Recorder(config.task(row))
    return [recorder.episode(seed) for seed in range(EPISODES)]


def _alike(found: list[Episode], others: list[Episode]) -> bool:
    return all(
        np.array_equal(one.first, other.first) and first_difference(one.steps, other.steps) is None
        for one, other in zip(found, others, strict=True)
    )
