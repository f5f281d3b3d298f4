"""The task family `logged`: tasks that are known by their logged episodes alone.

task:
  family: logged
  horizon: 100      # T: transitions of a context

`sad-hpc import` reads a Minari dataset and writes a config with the other keys.
"""

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from sad_hpc.errors import ConfigError, UserError
from sad_hpc.experiment.config import build
from sad_hpc.experiment.families import TaskConfig
from sad_hpc.experiment.sections import DataConfig, PretrainConfig
from sad_hpc.tasks.base import PLAY
from sad_hpc.tasks.environments.actions import Actions
from sad_hpc.tasks.environments.scales import reward_scale, state_scales
from sad_hpc.tasks.simulated import SimulatedFamily, Simulators


class LoggedConfig(TaskConfig):
    """The `task` section of logged tasks.

    `import` reads `horizon` and `bins`, and writes the other keys.  After a change of one of the
    two, the logs must be imported again.
    """

    family: Literal["logged"] = "logged"
    bins: int = Field(11, ge=2, le=64)
    """Least number of bins of each component of a continuous action."""
    actions: int = Field(1, ge=1, le=32_767)
    """Number of actions, or of the bins of each component."""
    components: int | None = Field(None, ge=1)
    """Number of components of an action in [-1, 1]^a; null: actions are numbers."""
    center: list[float] = []
    """Offset of each observed number; empty until the episodes are imported."""
    scale: list[float] = []
    """Factor of each observed number after that."""
    reward_scale: float = Field(1.0, gt=0)
    """Factor of rewards."""

    def fitted(
        self, actions: Actions, observations: NDArray[np.float32], rewards: NDArray[np.float32]
    ) -> "LoggedConfig":
        """Return the section with the actions and scales of logged transitions.

        Args:
            actions: conversion of actions.
            observations: (m, d).
            rewards: (m,).

        Raises:
            ConfigError: a value is not valid, such as too large a number of actions.
        """
        center, scale = state_scales(observations)
        found = {
            "actions": actions.count or actions.bins(self.bins),
            "components": actions.size or None,
            "center": list(center),
            "scale": list(scale),
            "reward_scale": reward_scale(rewards),
        }
        return build(type(self), self.model_dump(exclude_unset=True) | found, "logged tasks")


class Logged(SimulatedFamily):
    """Tasks without an environment.  A task's parameter is its number in the logs."""

    config_class = LoggedConfig
    config: LoggedConfig
    name = "logged"
    has_environment = shares_actions = False
    test_share = 0.0
    label_groups = (PLAY,)

    def __init__(self, config: LoggedConfig) -> None:
        super().__init__(config)
        if len(config.center) != len(config.scale):
            raise ConfigError("task.center and task.scale have different lengths: import again")
        self.n_actions, self.components = config.actions, config.components
        self.state_center, self.state_scale = tuple(config.center), tuple(config.scale)
        self.dense_reward_scale = config.reward_scale

    def check_data(self, data: DataConfig) -> None:
        """Implement `TaskFamily.check_data`."""
        super().check_data(data)
        if data.imported_contexts is not None and data.has_known_tasks:
            raise ConfigError(
                f"data.imported_contexts={data.imported_contexts} is of tasks with parameters, "
                "which task.family=logged does not have: set it to that of a logs-... import"
            )
        if data.behavior_policy != "uniform":
            raise ConfigError("data.behavior_policy has no effect on logged episodes: remove it")

    def draw_tasks(
        self, split: str, count: int, generator: np.random.Generator
    ) -> NDArray[np.float64]:
        """Raise UserError: logged tasks cannot be drawn."""
        raise self._no_environment()

    def simulators(
        self, parameters: NDArray[np.float64], generator: np.random.Generator
    ) -> Simulators:
        """Raise UserError: there is no environment."""
        raise self._no_environment()

    def stored_tasks(self, parameters: NDArray[np.float64]) -> NDArray[Any]:
        """Raise UserError: logged tasks have no parameters."""
        raise self._no_environment()

    def _no_environment(self) -> UserError:
        return UserError(
            "task.family=logged has no environment: `sad-hpc import CONFIG --minari DATASET` "
            "writes a config with contexts"
        )


def held_out_rows(tasks: NDArray[Any], pretrain: PretrainConfig) -> int:
    """Return how many of the last contexts are held out of training.

    They are `pretrain.holdout_tasks`, rounded up to whole tasks, because the contexts of a task
    have the same dynamics, and DPT's labels are of other contexts of the task.

    Args:
        tasks: (n,) numbers of the contexts' tasks; contexts of a task are successive.
        pretrain: settings of the training.

    Raises:
        UserError: the other tasks do not fill a batch.
    """
    wanted = min(pretrain.holdout_tasks, len(tasks))
    n_train = int(np.argmax(tasks == tasks[-wanted]))
    if n_train < pretrain.batch_size:
        raise UserError(
            f"pretrain.holdout_tasks={wanted} keeps whole logged tasks out of training, and leaves "
            f"{n_train:,} of {len(tasks):,} contexts, which do not fill one batch of "
            f"pretrain.batch_size={pretrain.batch_size}: lower one of them, or import more tasks"
        )
    return len(tasks) - n_train
