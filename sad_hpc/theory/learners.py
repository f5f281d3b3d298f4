"""The exact learners of a config's rows, without a training: see `evaluate.exact`."""

import json
from typing import Any

import numpy as np
import pandas as pd

from sad_hpc.dataset.reader import Arrays
from sad_hpc.distill import make_block
from sad_hpc.errors import ConfigError
from sad_hpc.evaluate.exact import Learner, exact_learner, plays_randomly
from sad_hpc.experiment.experiment import Experiment
from sad_hpc.tasks.bandit import BanditFamily
from sad_hpc.tasks.base import TaskFamily, make_family
from sad_hpc.tasks.tabular import TabularFamily

Line = dict[str, float]


def exact_learners(experiment: Experiment[Any]) -> pd.DataFrame:
    """Return one line for each row with an exact learner: means over the tasks of `evaluate.tasks`.

    Columns: row; offline; reward_seen (offline, over contexts with a reward) in rooms, or lengths
    (the mean over context lengths) in bandits; and online (the headline number, at temperature 1).
    Rows whose learner is not computable, or plays at random, are left out.

    Raises:
        ConfigError: no row has an exact learner.
    """
    family = make_family(experiment.task)
    if not isinstance(family, TabularFamily | BanditFamily):
        raise ConfigError(f"{family.name}: exact learners are for bandits and tabular families")
    found, known = [], dict[str, Line | None]()
    for row in experiment.by_row:
        own, method = experiment.of_row(row)
        labels = _what_decides(own, method)
        if labels not in known:
            known[labels] = _line(family, own, method)
        if (line := known[labels]) is not None:
            found.append({"row": row, **line})
    if not found:
        raise ConfigError(f"{family.name} has no computable exact learner, or too many tasks")
    return pd.DataFrame(found)


def _what_decides(own: Experiment[Any], method: str) -> str:
    """Return the settings that a learner depends on, which several rows may share."""
    unused = {"tasks", "queries_per_task"}
    tested, trained = (
        each.data.model_dump(mode="json", exclude=unused) for each in (own, own.source)
    )
    shown = own.evaluate.model_dump(mode="json", include={"memory", "context"})
    return json.dumps([method, tested, trained, own.dit.model_dump(mode="json"), shown])


def _line(family: TaskFamily, own: Experiment[Any], method: str) -> Line | None:
    learner = None if plays_randomly(own, method) else exact_learner(family, own, method)
    return None if learner is None else mean_returns(learner, family, own)


def mean_returns(learner: Learner, family: TaskFamily, own: Experiment[Any]) -> Line:
    """Return the columns of `exact_learners`, apart from row, of one learner."""
    played = learner(_columns(family, own), np.random.default_rng(own.evaluate.seed))
    offline, rewards = played["offline"]
    line = {"offline": float(offline[:, -1].mean())}
    if rewards is not None:
        line["reward_seen"] = float(offline[rewards > 0].mean())
    if "lengths" in played:
        line["lengths"] = float(played["lengths"][0].mean())
    last = 1 if rewards is None else own.evaluate.headline_episodes
    return line | {"online": float(played["online"][0][:, -last:].mean())}


def _columns(family: TaskFamily, own: Experiment[Any]) -> Arrays:
    """Return contexts and parameters of the first test tasks."""
    data = own.data.in_round(1).model_copy(update={"block_tasks": own.evaluate.tasks})
    return make_block(family, data, "test", 0).arrays
