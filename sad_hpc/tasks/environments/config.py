"""Common settings in the `task` sections of environment families."""

import functools
import re
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from sad_hpc.errors import ConfigError
from sad_hpc.experiment.config import Role, with_role
from sad_hpc.experiment.families import Horizon, TaskConfig
from sad_hpc.tasks.environments.laws import Law, Laws
from sad_hpc.tasks.environments.task import EnvironmentTask


class EnvironmentConfig(TaskConfig):
    """An environment and the distributions of the parameters that differ between tasks."""

    env: str
    """An id that gymnasium.make takes."""
    horizon: Horizon
    make: dict[str, Any] = {}
    """Keyword arguments of gymnasium.make, the same for all tasks."""
    vary: dict[str, Law] = {}
    """Keyword arguments of gymnasium.make that differ between tasks."""
    attributes: dict[str, Law] = {}
    """Attributes of the unwrapped environment that differ between tasks."""
    rewards: Literal["dense", "sparse"] = "dense"
    """sparse: 0 or 1, and mostly 0.  Algorithm 5 makes the labels then, Algorithm 3 otherwise."""
    test_share: float = with_role(Role.TASK_SPLIT, 0.2, gt=0, lt=1)
    """Share of tasks in the test split."""
    split_seed: int = with_role(Role.TASK_SPLIT, 0, ge=0)
    """Seed of the division of finitely many tasks into training and test."""

    @property
    def name(self) -> str:
        """Name of the environment in result tables."""
        return re.sub(r"\W+", "_", self.env.rpartition(":")[2]).lower()

    @functools.cached_property
    def laws(self) -> Laws:
        """Distributions of all parameters that differ between tasks.

        Raises:
            ConfigError: no parameter differs, a name is in two places, or the splits would share
                tasks.
        """
        for key, others in (("attributes", self.attributes), ("make", self.make)):
            if both := sorted(self.vary.keys() & others.keys()):
                raise ConfigError(
                    f"task.vary and task.{key} both have {', '.join(both)}: remove each from one"
                )
        return Laws({**self.vary, **self.attributes}, self.test_share, self.split_seed)

    def task(self, row: NDArray[np.float64]) -> EnvironmentTask:
        """Return the task with parameters (p,)."""
        values = self.laws.values(row)
        make = {name: values[name] for name in self.vary}
        attributes = {name: values[name] for name in self.attributes}
        return EnvironmentTask(
            self.env, _with_tuples({**self.make, **make}), _with_tuples(attributes)
        )


def _with_tuples(value: Any) -> Any:
    """Convert the lists of YAML to tuples, which environments compare positions with."""
    if isinstance(value, dict):
        return {key: _with_tuples(part) for key, part in value.items()}
    return tuple(map(_with_tuples, value)) if isinstance(value, list) else value
