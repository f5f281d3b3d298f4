"""Evaluation by kind of task family."""

import functools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sad_hpc.dataset.reader import Arrays
from sad_hpc.evaluate.acting import ActingRule
from sad_hpc.evaluate.bandit import evaluate_bandit, play_pulls
from sad_hpc.evaluate.evaluation import Evaluation
from sad_hpc.evaluate.poses import evaluate_poses, play_rooms
from sad_hpc.evaluate.result import ModeResult
from sad_hpc.evaluate.simulated import evaluate_simulated, play_simulators
from sad_hpc.evaluate.tabular import evaluate_tabular, play_tables
from sad_hpc.experiment.sections import EvaluateConfig
from sad_hpc.tasks.bandit import BanditFamily
from sad_hpc.tasks.base import TaskFamily

Modes = dict[str, ModeResult]


@functools.singledispatch
def evaluate_family(
    family: TaskFamily,
    evaluation: Evaluation,
    columns: Arrays,
) -> Modes:
    """Evaluate a model on test tasks, offline and online.

    Args:
        family: family of the tasks.
        evaluation: the model, and how it is evaluated.
        columns: contexts and parameters of the tasks.
    """
    raise TypeError(f"no evaluation for {type(family).__name__}")


evaluate_family.register(evaluate_tabular)
evaluate_family.register(evaluate_bandit)
evaluate_family.register(evaluate_simulated)
evaluate_family.register(evaluate_poses)


@functools.singledispatch
def play_online(
    family: TaskFamily,
    evaluation: Evaluation,
    parameters: NDArray[Any],
    rule: ActingRule,
) -> tuple[NDArray[np.float32], NDArray[np.int32] | None]:
    """Play online (Algorithm 6) by an acting rule.

    Args:
        family: family of the tasks.
        evaluation: the model, and how it is evaluated.  Units are episodes or pulls.
        parameters: (n, p) of the tasks.
        rule: rule of the actions.

    Returns:
        values (n, K) of episodes or pulls, and the numbers of rewards in their contexts (n, K).
    """
    raise TypeError(f"no evaluation for {type(family).__name__}")


play_online.register(play_tables)
play_online.register(play_pulls)
play_online.register(play_simulators)
play_online.register(play_rooms)


@functools.singledispatch
def n_units(family: TaskFamily, settings: EvaluateConfig) -> tuple[int, str]:
    """Return the number of units of work in a chunk, and their name."""
    return 1 + n_online(settings) * settings.online_episodes, "episodes"


@n_units.register
def _pulls(family: BanditFamily, settings: EvaluateConfig) -> tuple[int, str]:
    return n_online(settings) * family.config.horizon, "pulls"


def n_online(settings: EvaluateConfig) -> int:
    """Return the number of online modes of a result."""
    return 2 if settings.acting == "auto" else 1
