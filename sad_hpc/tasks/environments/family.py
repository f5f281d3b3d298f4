"""The task family `gymnasium`: an environment and the distributions of its tasks' parameters.

task:
  family: gymnasium
  env: CartPole-v1                  # or "module:Id", which imports the user's module first
  horizon: 100                      # T: transitions of a context, and steps of an episode
  make: {sutton_barto_reward: true} # keyword arguments of gymnasium.make that all tasks share
  vary: {length: {uniform: [1, 2]}} # keyword arguments that differ between tasks
  attributes:                       # attributes of the unwrapped environment that differ
    gravity: {uniform: [5, 15], test: {uniform: [15, 20]}}
"""

import functools
import json
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from sad_hpc.errors import ConfigError
from sad_hpc.experiment.sections import DataConfig
from sad_hpc.tasks.environments.config import EnvironmentConfig
from sad_hpc.tasks.environments.replayed import Replayed
from sad_hpc.tasks.environments.scales import reward_scale, state_scales
from sad_hpc.tasks.environments.simulator import Simulator, environment_code
from sad_hpc.tasks.environments.simulators import EnvironmentSimulators
from sad_hpc.tasks.environments.task import make_environment
from sad_hpc.tasks.environments.trials import choose_adapter
from sad_hpc.tasks.fingerprint import Fingerprint, fingerprint
from sad_hpc.tasks.simulated import SimulatedFamily, Spaces

LOOKED_AT = 16
"""Number of tasks in which random play estimates the scale of observations and rewards."""


class SimulatorConfig(EnvironmentConfig):
    """The `task` section of an environment that is simulated."""

    bins: int = Field(11, ge=2, le=64)
    """Bins of each component of a continuous action in the model's answers."""


class GymnasiumConfig(SimulatorConfig):
    """The `task` section of a Gymnasium environment."""

    family: Literal["gymnasium"] = "gymnasium"


@dataclass(frozen=True)
class Probe:
    """Properties of an environment, from random play."""

    n_actions: int
    """Number of actions, or of the bins of each component."""
    components: int | None
    """Number of components of such a vector; None: actions are numbers."""
    frame_shape: tuple[int, int, int] | None
    """(H, W, C) of observations that are images; None: they are numbers."""
    center: tuple[float, ...]
    scale: tuple[float, ...]
    """(d,): rounded mean, and rounded inverse of the standard deviation, of observations; () of
    images."""
    reward_scale: float
    spaces: Spaces
    code: tuple[str, ...]
    """Digests of the user's code (see `code_digests`)."""
    fingerprint: Fingerprint
    """Fingerprint of all observations and rewards."""


class EnvironmentFamily(SimulatedFamily):
    """The tasks of one environment; a task's parameters are the drawn values.

    Args:
        config: the `task` section.
        probe: properties of the environment.
    """

    config: SimulatorConfig
    data_revision = SimulatedFamily.data_revision + 1  # parameters have streams of their own
    copies: str
    """The way in which states are copied, as `description` names it."""

    def __init__(self, config: SimulatorConfig, probe: Probe) -> None:
        super().__init__(config)
        self.name = config.name
        self.test_share, self.sparse_reward = config.test_share, config.rewards == "sparse"
        self.n_actions, self.components = probe.n_actions, probe.components
        self.frame_shape = probe.frame_shape
        if self.frame_shape is not None:  # flattened before
            self.data_revision += 1
        self.state_center, self.state_scale = probe.center, probe.scale
        self.dense_reward_scale = probe.reward_scale
        self.spaces = probe.spaces
        self.code, self.fingerprint = probe.code, probe.fingerprint

    @property
    def description(self) -> str:
        """Implement `TaskFamily.description`."""
        actions = f"{self.n_actions} actions"
        if self.components is not None:
            actions = f"actions of {self.components} numbers"
        seen = f"{len(self.state_center)} observed numbers"
        if self.frame_shape is not None:
            seen = f"images of {' x '.join(map(str, self.frame_shape))}"
        return f"{self.config.env}: {seen}, {actions}; its states are copied by {self.copies}"

    def check_data(self, data: DataConfig) -> None:
        """Implement `TaskFamily.check_data`."""
        super().check_data(data)
        if self.components is not None and data.behavior_policy != "uniform":
            raise ConfigError(
                "data.behavior_policy must be uniform: the actions of "
                f"{self.config.env} are continuous"
            )

    def draw_tasks(
        self, split: str, count: int, generator: np.random.Generator
    ) -> NDArray[np.float64]:
        """Implement `SimulatedFamily.draw_tasks`."""
        return self.config.laws.draw(split, count, generator)

    def stored_tasks(self, parameters: NDArray[np.float64]) -> NDArray[np.float64]:
        """Implement `TaskFamily.stored_tasks`."""
        stored = super().stored_tasks(parameters)
        possible = self.config.laws.allow(stored)
        if not possible.all():
            raise self.no_task(parameters[possible.argmin()])
        return stored


class Gymnasium(EnvironmentFamily):
    """The tasks of a Gymnasium environment, which adapters copy."""

    config_class = GymnasiumConfig
    config: GymnasiumConfig

    def __init__(self, config: GymnasiumConfig) -> None:
        task = config.task(config.laws.draw("train", 1, np.random.default_rng(0))[0])
        code = environment_code(make_environment(task))
        words = json.dumps(config.model_dump(mode="json"), sort_keys=True)
        self._adapter, probe = _probe(words, code)
        super().__init__(config, probe)
        self.copies = self._adapter.adapter
        if self._adapter is Replayed:
            self.copies += ", in a time that grows with the square of task.horizon"

    def simulators(
        self, parameters: NDArray[np.float64], generator: np.random.Generator
    ) -> EnvironmentSimulators:
        """Implement `SimulatedFamily.simulators`."""
        tasks = [self.config.task(row) for row in parameters]
        return EnvironmentSimulators(tasks, self._adapter, generator, self.sparse_reward)


@functools.cache
def _probe(config_json: str, _code: tuple[str, ...]) -> tuple[type[Simulator], Probe]:
    """Choose an adapter, and play some training tasks at random; a change of `_code` repeats it.

    Raises:
        ConfigError: the environment cannot be made, seeded or copied, or a space is unsupported.
    """
    config = GymnasiumConfig.model_validate_json(config_json)
    generator = np.random.default_rng(0)
    rows = config.laws.draw("train", LOOKED_AT, generator)
    tasks = [config.task(row) for row in rows]
    adapter = choose_adapter(tasks[0])
    simulators = EnvironmentSimulators(tasks, adapter, generator, config.rewards == "sparse")
    return adapter, probed(simulators, config, generator)


def probed(simulators: Any, config: SimulatorConfig, generator: np.random.Generator) -> Probe:
    """Play simulators at random, identically for the same generator.

    Args:
        simulators: `Simulators` that also have the actions, spaces, frame_shape and code of
            `EnvironmentSimulators`.
        config: settings of the family.
        generator: random numbers of actions and episodes.
    """
    count = len(simulators.ended)
    seen, paid = [simulators.observations.copy()], []
    for _ in range(min(config.horizon, 200)):
        simulators.start(np.flatnonzero(simulators.ended), generator)
        paid.append(simulators.step(simulators.actions.drawn(count, generator)))
        seen.append(simulators.observations.copy())
    actions = simulators.actions
    return Probe(
        actions.count or actions.bins(config.bins),
        actions.size or None,
        simulators.frame_shape,
        *(((), ()) if simulators.frame_shape else state_scales(np.concatenate(seen))),
        reward_scale(np.array(paid)),
        simulators.spaces,
        simulators.code,
        fingerprint(np.stack(seen)) + fingerprint(np.stack(paid)[..., None]),
    )
