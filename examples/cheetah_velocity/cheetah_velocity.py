"""HalfCheetah with a target velocity (HalfCheetah-Vel of meta-RL), stepped by `mujoco.rollout`.

A task is a velocity from U[0, 3] m/s, which the agent does not observe.  The reward of a step of
0.05 s is -|velocity - wanted| - 0.05 |action|^2.  The body is that of Gymnasium's HalfCheetah-v5.
"""

import functools
from pathlib import Path
from typing import Any, Literal

import gymnasium.envs.mujoco
import mujoco
import numpy as np
from mujoco.rollout import rollout
from numpy.typing import NDArray
from pydantic import Field

from sad_hpc.experiment.families import Horizon, TaskConfig
from sad_hpc.tasks.simulated import SimulatedFamily, Simulators

BODY = Path(gymnasium.envs.mujoco.__file__).parent / "assets" / "half_cheetah.xml"
FRAMES = 5
"""Number of physics steps in a step."""
FASTEST = 3.0
"""Largest target velocity in m/s."""
EFFORT = 0.05
"""Weight of the squared actions in the reward."""
NOISE = 0.1
"""Scale of the noise in the initial state."""


class CheetahConfig(TaskConfig):
    """The `task` section of HalfCheetah-Vel."""

    family: Literal["cheetah_velocity"] = "cheetah_velocity"
    horizon: Horizon = 200
    """T: transitions in a context, and steps in an episode."""
    bins: int = Field(11, ge=2, le=64)
    """Bins of each action component in the model's answers."""


class CheetahVelocity(SimulatedFamily):
    """HalfCheetah tasks that differ in the target velocity; the parameter is the velocity."""

    config_class = CheetahConfig
    config: CheetahConfig
    name = "cheetah_velocity"
    title = "HalfCheetah-Vel"
    components = 6
    state_center = (0.0,) * 17
    state_scale = (2.0,) * 8 + (1.0,) + (0.25,) * 8

    def __init__(self, config: CheetahConfig) -> None:
        super().__init__(config)
        self.n_actions = config.bins

    def draw_tasks(
        self, split: str, count: int, generator: np.random.Generator
    ) -> NDArray[np.float64]:
        """Draw velocities, (count, 1); continuous values do not repeat, so splits share no task.

        Those for test are one of each `count`-th part of the range, in random order, so that
        replicates have test tasks of the same difficulty.
        """
        if split != "test":
            return generator.uniform(0, FASTEST, (count, 1))
        shares = (generator.permutation(count) + generator.uniform(size=count)) / count
        return FASTEST * shares[:, None]

    def simulators(
        self, parameters: NDArray[np.float64], generator: np.random.Generator
    ) -> "Cheetahs":
        """Implement `SimulatedFamily.simulators`."""
        model = _body()
        n_numbers = mujoco.mj_stateSize(model, mujoco.mjtState.mjSTATE_FULLPHYSICS)
        cheetahs = Cheetahs(model, parameters[:, 0], np.zeros((len(parameters), n_numbers)))
        cheetahs.start(np.arange(len(parameters)), generator)
        return cheetahs


@functools.cache
def _body() -> Any:
    """Load the body once a process: MuJoCo prints a warning whenever it reads the file."""
    return mujoco.MjModel.from_xml_path(str(BODY))


class Cheetahs(Simulators):
    """n bodies of one model; states (n, 1 + 9 + 9) are time, positions and velocities."""

    def __init__(
        self, model: Any, wanted: NDArray[np.float64], states: NDArray[np.float64]
    ) -> None:
        self._model, self._wanted, self._states = model, wanted, states
        self.ended = np.zeros(len(wanted), np.bool_)
        self._look()

    def start(self, rows: NDArray[np.int64], generator: np.random.Generator) -> None:
        """Implement `Simulators.start`."""
        parts = self._model.nq, self._model.nv
        self._states[rows, 0] = 0
        self._states[rows, 1 : 1 + parts[0]] = self._model.qpos0 + generator.uniform(
            -NOISE, NOISE, (len(rows), parts[0])
        )
        self._states[rows, 1 + parts[0] :] = NOISE * generator.standard_normal(
            (len(rows), parts[1])
        )
        self._look()

    def step(self, actions: NDArray[Any]) -> NDArray[np.float32]:
        """Implement `Simulators.step`."""
        before, forces = self._states[:, 1], np.clip(actions, -1, 1).astype(np.float64)
        data = mujoco.MjData(self._model)
        control = np.repeat(forces[:, None], FRAMES, axis=1)
        self._states = rollout(self._model, data, self._states, control)[0][:, -1]
        velocity = (self._states[:, 1] - before) / (FRAMES * self._model.opt.timestep)
        self._look()
        rewards = -np.abs(velocity - self._wanted) - EFFORT * (forces**2).sum(axis=1)
        return rewards.astype(np.float32)

    def copied(self, rows: NDArray[np.int64], generator: np.random.Generator) -> "Cheetahs":
        """Implement `Simulators.copied`."""
        return Cheetahs(self._model, self._wanted[rows], self._states[rows])

    def _look(self) -> None:
        """Set the observations: the states without time and horizontal position."""
        self.observations = self._states[:, 2:].astype(np.float32)
