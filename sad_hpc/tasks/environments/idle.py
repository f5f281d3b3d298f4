"""Parameters of tasks that do nothing, as far as random play can tell."""

import numpy as np
from numpy.typing import NDArray

from sad_hpc.tasks.environments.config import EnvironmentConfig
from sad_hpc.tasks.environments.replay import Episode, Recorder, first_difference

VALUES, EPISODES = 4, 3
"""So many other values of each parameter are compared, in so many episodes each."""


def idle_parameters(config: EnvironmentConfig) -> list[str]:
    """The names of the parameters that made no difference when nothing else was changed.

    An environment may compute what it derives from an attribute before the attribute is set, or
    ignore a keyword; then all tasks are the same and a context has nothing to tell.  A parameter
    that random play seldom meets, as a distant goal, is named as well.

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
