"""Batches of Gymnasium environments for label rollouts."""

import functools
import pickle
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sad_hpc.errors import ConfigError, EnvironmentFailure, described
from sad_hpc.experiment.numbers import in_range, reward_fault
from sad_hpc.tasks.environments.actions import Actions, actions_of
from sad_hpc.tasks.environments.observations import Observations, first_out_of_range
from sad_hpc.tasks.environments.simulator import Simulator, environment_code
from sad_hpc.tasks.environments.task import EnvironmentTask, make_environment
from sad_hpc.tasks.simulated import Simulators, Spaces
from sad_hpc.user_code import FAILURES, UserCode

SEEDS = 2**31
"""Upper bound of seeds of episodes and copies; some environments reject larger ones."""


class EnvironmentSimulators(Simulators):
    """n environments; see Simulators.

    Actions are numbers (n,) for Discrete spaces, and vectors (n, a) in [-1, 1] for a Box.  Every
    row has its own environment or, if the adapter saves states, its own state of one environment
    for each task.  Errors name the environment, its task, the episode's seed and the step.
    """

    def __init__(
        self,
        tasks: Sequence[EnvironmentTask],
        adapter: type[Simulator],
        generator: np.random.Generator,
        sparse: bool = False,
    ) -> None:
        """Make an environment for each distinct task, and start an episode in every row.

        Args:
            tasks: n tasks with the same spaces.
            adapter: class that copies them (`trials.choose_adapter`).
            generator: draws the seeds of the episodes.
            sparse: whether all rewards must be 0 or 1.

        Raises:
            ConfigError: an environment cannot be made, or its spaces differ from the first one's.
            EnvironmentFailure: an environment fails.
        """
        self._tasks, self._sparse = list(tasks), sparse
        self._simulators = _made(self._tasks, adapter)
        environment = self._simulators[0].environment
        self._codec = Observations(environment.observation_space)
        self.actions: Actions = actions_of(environment.action_space)
        n = len(self._tasks)
        self.observations = np.zeros((n, *self._codec.shape), self._codec.dtype)
        self.ended = np.zeros(n, np.bool_)
        self._seeds, self._steps = np.zeros(n, np.int64), np.zeros(n, np.int64)
        self._row: int | np.integer[Any] = 0
        self.start(np.arange(n), generator)

    @property
    def frame_shape(self) -> tuple[int, int, int] | None:
        """(H, W, C) of observations that are images; None: they are numbers."""
        return self._codec.frame_shape

    @property
    def spaces(self) -> Spaces:
        """Spaces of observations and of actions."""
        environment = self._simulators[0].environment
        return environment.observation_space, environment.action_space

    @property
    def code(self) -> tuple[str, ...]:
        """Digests of the user's code of the environment (see `code_digests`)."""
        return environment_code(self._simulators[0].environment)

    def start(self, rows: NDArray[np.int64], generator: np.random.Generator) -> None:
        """Implement `Simulators.start`."""
        if not len(rows):
            return
        with UserCode(self._doing):
            for row, seed in zip(rows, generator.integers(SEEDS, size=len(rows)), strict=True):
                self._seeds[row], self._steps[row], self.ended[row] = seed, 0, False
                self._row = row
                try:
                    observation = self._simulators[row].reset(int(seed))
                    self._codec.write(observation, self.observations[row])
                except FAILURES as error:
                    raise self._failure(row, error) from error
        self._check_range(rows)

    def step(self, actions: NDArray[Any]) -> NDArray[np.float32]:
        """Implement `Simulators.step`.

        Raises:
            EnvironmentFailure: an environment fails, or a number is outside `in_range`.
        """
        rewards = np.zeros(len(self._tasks), np.float32)
        rows = np.flatnonzero(~self.ended)
        self._steps[rows] += 1
        with UserCode(self._doing):
            for row in rows:
                self._row = row
                try:
                    action = self.actions.taken(actions[row])
                    observation, reward, self.ended[row] = self._simulators[row].step(action)
                    self._codec.write(observation, self.observations[row])
                except FAILURES as error:
                    raise self._failure(row, error) from error
                rewards[row] = reward
        self._check_range(rows)
        if self._sparse:
            self._check_sparse(rewards)
        return rewards

    def copied(
        self, rows: NDArray[np.int64], generator: np.random.Generator
    ) -> "EnvironmentSimulators":
        """Implement `Simulators.copied`.

        Raises:
            EnvironmentFailure: an environment cannot be copied in this state.
        """
        twin = object.__new__(type(self))
        twin._codec, twin.actions, twin._sparse = self._codec, self.actions, self._sparse
        twin._tasks = [self._tasks[row] for row in rows]
        twin._simulators = []
        with UserCode(self._doing):
            for row, seed in zip(rows, generator.integers(SEEDS, size=len(rows)), strict=True):
                self._row = row
                try:
                    twin._simulators.append(self._simulators[row].copied(int(seed)))
                except FAILURES as error:
                    raise self._failure(row, error) from error
        twin._row = 0
        twin.observations, twin.ended = self.observations[rows], self.ended[rows]
        twin._seeds, twin._steps = self._seeds[rows], self._steps[rows]
        return twin

    def _check_range(self, rows: NDArray[np.int64]) -> None:
        """Check all rows at once; a check of each would take as long as a step."""
        if self.frame_shape is not None:
            return
        for row in rows[~in_range(self.observations[rows]).all(axis=1)]:
            raise self._failure(row, ValueError(first_out_of_range(self.observations[row])))

    def _check_sparse(self, rewards: NDArray[np.float32]) -> None:
        for row in np.flatnonzero((rewards != 0) & (rewards != 1)):
            raise self._failure(row, ValueError(reward_fault(rewards[row], sparse=True)))

    def _failure(self, row: np.integer[Any], error: BaseException) -> EnvironmentFailure:
        place = f"{self._tasks[row]} fails in {self._step_of(row)}"
        return EnvironmentFailure(f"{place}: {described(error)}")

    def _doing(self) -> str:
        return f"{self._tasks[self._row]}, {self._step_of(self._row)}"

    def _step_of(self, row: int | np.integer[Any]) -> str:
        return f"step {self._steps[row]} of the episode of seed {self._seeds[row]}"


def _made(tasks: Sequence[EnvironmentTask], adapter: type[Simulator]) -> list[Simulator]:
    """Return a simulator for each task, not started; those of equal tasks are copies."""
    made: dict[bytes, Simulator] = {}
    simulators = []
    for task in tasks:
        key = pickle.dumps((task.id, dict(task.make), dict(task.attributes)))
        if key in made:
            simulators.append(made[key].copied())
            continue
        make = functools.partial(make_environment, task)
        made[key] = adapter(make(), make)
        simulators.append(made[key])
        _check_spaces(made[key], task, simulators[0], tasks[0])
    return simulators


def _check_spaces(
    one: Simulator, task: EnvironmentTask, first: Simulator, first_task: EnvironmentTask
) -> None:
    for kind in ("observation_space", "action_space"):
        space, wanted = getattr(one.environment, kind), getattr(first.environment, kind)
        if space != wanted:
            raise ConfigError(
                f"the {kind} of {task} is {space}, but that of {first_task} is {wanted}: remove "
                "the parameter that changes it, or register the environment with a padding wrapper"
            )
