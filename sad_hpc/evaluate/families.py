"""Evaluation by kind of task family."""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sad_hpc.dataset.reader import Arrays
from sad_hpc.evaluate.acting import ActingRule
from sad_hpc.evaluate.bandit import evaluate_bandit, play_pulls
from sad_hpc.evaluate.policy import Trained
from sad_hpc.evaluate.result import ModeResult
from sad_hpc.evaluate.simulated import evaluate_simulated, play_simulators
from sad_hpc.evaluate.tabular import evaluate_tabular, play_tables
from sad_hpc.experiment.sections import EvaluateConfig
from sad_hpc.tasks.bandit import BanditFamily
from sad_hpc.tasks.base import TaskFamily
from sad_hpc.tasks.miniworld.family import Miniworld

Modes = dict[str, ModeResult]


@functools.singledispatch
def evaluate_family(
    family: TaskFamily,
    trained: Trained,
    columns: Arrays,
    settings: EvaluateConfig,
    generator: np.random.Generator,
    report: Callable[[int], None],
    chosen: ActingRule | None = None,
) -> Modes:
    """Evaluate a model on test tasks, offline and online.

    Args:
        family: family of the tasks.
        trained: the model.
        columns: contexts and parameters of the tasks.
        settings: settings of the evaluation.
        generator: random numbers of tasks and actions.
        report: called with the number of finished units; see `n_units`.
        chosen: acting rule that `auto` has chosen; None: the config gives it.
    """
    raise TypeError(f"no evaluation for {type(family).__name__}")


evaluate_family.register(evaluate_tabular)
evaluate_family.register(evaluate_bandit)
evaluate_family.register(evaluate_simulated)


@evaluate_family.register
def _evaluate_rooms(family: Miniworld, *rest: Any) -> Modes:
    from sad_hpc.evaluate.poses import evaluate_poses  # needs OpenGL

    return evaluate_poses(family, *rest)


@functools.singledispatch
def play_online(
    family: TaskFamily,
    trained: Trained,
    parameters: NDArray[Any],
    settings: EvaluateConfig,
    rule: ActingRule,
    generator: np.random.Generator,
    report: Callable[[int], None],
) -> tuple[NDArray[np.float32], NDArray[np.int32] | None]:
    """Play online (Algorithm 6) by an acting rule.

    Args:
        family: family of the tasks.
        trained: the model.
        parameters: (n, p) of the tasks.
        settings: settings of the evaluation.
        rule: rule of the actions.
        generator: random numbers of tasks and actions.
        report: called with the number of finished episodes or pulls.

    Returns:
        values (n, K) of episodes or pulls, and the numbers of rewards in their contexts (n, K).
    """
    raise TypeError(f"no evaluation for {type(family).__name__}")


play_online.register(play_tables)
play_online.register(play_pulls)
play_online.register(play_simulators)


@play_online.register
def _play_rooms(family: Miniworld, *rest: Any) -> Any:
    from sad_hpc.evaluate.poses import play_rooms  # needs OpenGL

    return play_rooms(family, *rest)


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
