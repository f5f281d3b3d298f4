"""The exact learners of a config's labels, without a training: see `evaluate.exact`."""

from typing import Any

import numpy as np
import pandas as pd

from sad_hpc.distill import make_block
from sad_hpc.errors import ConfigError
from sad_hpc.evaluate.exact import exact_learner
from sad_hpc.experiment.experiment import Experiment
from sad_hpc.tasks.bandit import BanditFamily
from sad_hpc.tasks.base import make_family
from sad_hpc.tasks.tabular import TabularFamily

LEARNERS = {
    "AD": ("AD", "random"),
    "DIT": ("DIT", "random"),
    "DPT*": ("DPT*", "random"),
    "DPT*, lowest": ("DPT*", "lowest"),
    "SAD": ("SAD", "random"),
}
"""Method and `data.oracle_tie_break` of each learner."""


def exact_learners(experiment: Experiment[Any]) -> pd.DataFrame:
    """Return one line for each exact learner: the means over the test tasks of `evaluate.tasks`.

    Columns: learner; offline; reward_seen (offline, over contexts with a reward) in rooms, or
    lengths (the mean over context lengths) in bandits; and online (the headline number, at
    temperature 1).  Learners that are not computable, or that play at random, are left out.

    Raises:
        ConfigError: the family has no exact learners.
    """
    family = make_family(experiment.task)
    if not isinstance(family, TabularFamily | BanditFamily):
        raise ConfigError(f"{family.name}: exact learners are for bandits and tabular families")
    data = experiment.data.model_copy(update={"block_tasks": experiment.evaluate.tasks})
    columns = make_block(family, data, "test", 0).arrays
    lines = []
    for name, (method, ties) in LEARNERS.items():
        if ties == "lowest" and isinstance(family, BanditFamily):
            continue  # a bandit has one best arm
        own = experiment.data.model_copy(update={"oracle_tie_break": ties})
        learner = exact_learner(family, experiment.model_copy(update={"data": own}), method)
        if learner is None:
            continue
        played = learner(columns, np.random.default_rng(experiment.evaluate.seed))
        offline, rewards = played["offline"]
        line = {"learner": name, "offline": offline[:, -1].mean()}
        if rewards is not None:
            line["reward_seen"] = offline[rewards > 0].mean()
        if "lengths" in played:
            line["lengths"] = played["lengths"][0].mean()
        last = experiment.evaluate.headline_episodes if rewards is not None else 1
        lines.append(line | {"online": played["online"][0][:, -last:].mean()})
    if not lines:
        raise ConfigError(f"{family.name} has no computable exact learner, or too many tasks")
    return pd.DataFrame(lines)
