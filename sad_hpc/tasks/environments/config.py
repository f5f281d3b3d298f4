"""What the `task` sections of families of environments have in common."""

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
    """An environment, and what of it differs between tasks."""

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
    """sparse: 0 or 1, and mostly 0; labels are those of Algorithm 5 then, else of Algorithm 3."""
    test_share: float = with_role(Role.TASK_SPLIT, 0.2, gt=0, lt=1)
    """Of the tasks, for the test split."""
    split_seed: int = with_role(Role.TASK_SPLIT, 0, ge=0)
    """Seed of the dealing of finitely many tasks to training and test."""

    @property
    def name(self) -> str:
        """The environment's, as result tables write it."""
        return re.sub(r"\W+", "_", self.env.rpartition(":")[2]).lower()

    @functools.cached_property
    def laws(self) -> Laws:
        """Of all that differs.

        Raises:
            ConfigError: nothing does, a name is in two places, or the splits would share tasks.
        """
        for key, others in (("attributes", self.attributes), ("make", self.make)):
            if both := sorted(self.vary.keys() & others.keys()):
                raise ConfigError(
                    f"task.vary and task.{key} both have {', '.join(both)}: leave each in one"
                )
        return Laws({**self.vary, **self.attributes}, self.test_share, self.split_seed)

    def task(self, row: NDArray[np.float64]) -> EnvironmentTask:
        """The task with parameters (p,)."""
        values = self.laws.values(row)
        make = {name: values[name] for name in self.vary}
        attributes = {name: values[name] for name in self.attributes}
        return EnvironmentTask(
            self.env, _with_tuples({**self.make, **make}), _with_tuples(attributes)
        )


def _with_tuples(value: Any) -> Any:
    """YAML has lists only; environments compare positions with tuples."""
    if isinstance(value, dict):
        return {key: _with_tuples(part) for key, part in value.items()}
    return tuple(map(_with_tuples, value)) if isinstance(value, list) else value
