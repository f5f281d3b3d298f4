"""The choice of an acting rule (`evaluate.acting: auto`) on tasks of the training split.

Each rule plays the same tasks with the same random numbers.  The tasks are the validation tasks of
the training, or the last tasks of its dataset if there are none.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sad_hpc.evaluate.acting import Selection, grid
from sad_hpc.evaluate.evaluation import Evaluation
from sad_hpc.evaluate.families import play_online
from sad_hpc.evaluate.policy import Trained
from sad_hpc.experiment.sections import EvaluateConfig
from sad_hpc.parallel import preemption
from sad_hpc.storage.json_files import read_json, typed, write_json
from sad_hpc.storage.progress import Progress
from sad_hpc.storage.stage_folder import StageFolder
from sad_hpc.tasks.bandit import BanditFamily
from sad_hpc.tasks.base import TaskFamily
from sad_hpc.user_code import UserCode

CHUNKS = "chunks"
"""Folder of results until the evaluation is finished."""

COMPARED_TASKS = 100
"""Number of tasks on which rules are compared; validation tasks are repeated in turn."""
PURPOSE = (0, 1)
"""The last words of the seed.  NumPy ignores zeros at the end, so that without the 1 the random
numbers would be those of the first chunk of test tasks."""


def selected(
    family: TaskFamily,
    trained: Trained,
    parameters: NDArray[Any],
    settings: EvaluateConfig,
    seed: int,
    folder: StageFolder,
) -> Selection:
    """Return the comparison of all rules; values that an earlier start has found are read.

    Args:
        family: family of the tasks.
        trained: the model.
        parameters: (n, p) of the tasks.
        settings: settings of the evaluation.
        seed: seed of the training.
        folder: folder of the evaluation.
    """
    path = folder.path / CHUNKS / "acting.json"
    path.parent.mkdir(exist_ok=True)
    rules = grid(family.sparse_reward, family.components is not None)
    lower = isinstance(family, BanditFamily)  # regret, whose last number is the headline
    headline = 1 if lower else settings.headline_episodes
    found = typed(list[list[float]], read_json(path)) or []
    with Progress(folder, len(rules), "acting rules", len(found)) as progress:
        for rule in rules[len(found) :]:
            generator = np.random.default_rng([settings.seed, seed, *PURPOSE])
            with UserCode(lambda: "the choice of an acting rule", watched=False):
                values, _ = play_online(
                    family,
                    Evaluation(trained, settings, generator, _stop_if_asked),
                    parameters,
                    rule,
                )
            found.append(values[:, -headline:].mean(axis=1).tolist())
            write_json(path, found)
            progress.update(len(found))
    return Selection.of_values(rules, np.array(found), parameters, higher_is_better=not lower)


def _stop_if_asked(units: int) -> None:
    """Raise Preempted after a signal."""
    preemption.check()
