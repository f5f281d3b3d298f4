"""Logged tasks: the episodes of a Minari dataset as contexts of a family's training tasks.

The dataset has the format of `interchange`.  Each episode's metadata has `task_index` and
`task_parameters`.  The dataset's metadata has the `task` section in `sad_hpc.config.task`.
"""

import operator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sad_hpc.dataset.interchange import action_space, observation_space
from sad_hpc.dataset.minari_folder import inside, opened, readable
from sad_hpc.distill.block import Given, Transitions
from sad_hpc.errors import UserError
from sad_hpc.experiment.config import Role, build, differences, fields_of, resolved
from sad_hpc.tasks.base import TaskFamily


class LoggedTasks:
    """The tasks of a Minari dataset, in the order of their indices.

    Args:
        path: its folder, such as my-datasets/darkroom-train-v0.
        family: family of the tasks.

    Raises:
        UserError: Minari is not installed, the dataset or its task metadata are missing, or its
            tasks are not training tasks of the family.
    """

    def __init__(self, path: Path, family: TaskFamily) -> None:
        self._path, self._family = path, family
        self._spaces = {"observation": observation_space(family), "action": action_space(family)}
        with readable(path):
            self._dataset = opened(path)
            self._check_origin()
            self._check_spaces()
            self._tasks, self._parameters = self._found()

    def __len__(self) -> int:
        """Return the number of tasks."""
        return len(self._tasks)

    def given(self, first: int, count: int) -> Given:
        """Return tasks first .. first + count - 1 with the first T transitions of each.

        Raises:
            UserError: a task has fewer transitions, or they contradict its dynamics.
        """
        rows = slice(first, first + count)
        tasks, parameters = list(self._tasks.items())[rows], self._parameters[rows]
        with readable(self._path):
            context = self._context(tasks)
        # Logged episodes can end at any step, as in windows of Q-learning histories.
        if faults := self._family.dynamics_faults(parameters, "episodes", context.parts, cut=True):
            raise self._error(f"tasks {tasks[0][0]} to {tasks[-1][0]} do not fit: {faults[0]}")
        return Given(parameters, context)

    def _context(self, tasks: list[tuple[int, list[int]]]) -> Transitions:
        """Read the first T transitions of tasks, which are given with their episodes, (n, T)."""
        horizon, result = self._family.config.horizon, self._empty(len(tasks))
        found = np.zeros(len(tasks), np.int64)
        row_of_episode = {number: row for row, (_, mine) in enumerate(tasks) for number in mine}
        episodes = self._dataset.iterate_episodes(list(row_of_episode))
        for (number, row), episode in zip(row_of_episode.items(), episodes, strict=True):
            steps = len(episode.rewards)
            if not len(episode.observations) - 1 == len(episode.actions) == steps:
                raise self._error(f"episode {number} lacks an action or a reward for a step")
            here = slice(found[row], min(found[row] + steps, horizon))
            columns = {
                "states": episode.observations[:-1],
                "actions": episode.actions,
                "rewards": episode.rewards,
                "next_states": episode.observations[1:],
                "ends": episode.terminations,
            }
            for name, part in result.parts.items():
                values = np.asarray(columns[name])[: here.stop - here.start]
                part[row, here] = self._stored(values, part, f"{name} of episode {number}")
            found[row] = here.stop
        for (task, _), steps in zip(tasks, found.tolist(), strict=True):
            if steps < horizon:
                raise self._error(
                    f"task {task} has {steps} transitions, but task.horizon={horizon}: log more, "
                    "or lower task.horizon"
                )
        return result

    def _empty(self, count: int) -> Transitions:
        """Allocate contexts (count, T)."""
        family, shape = self._family, (count, self._family.config.horizon)
        state = self._spaces["observation"]
        states = np.zeros((*shape, *state.shape), state.dtype)
        vector = () if family.components is None else (family.components,)
        actions = np.zeros((*shape, *vector), family.action_dtype)
        rewards = np.zeros(shape, family.reward_dtype)
        ends = np.zeros(shape, np.uint8) if family.has_ends else None
        return Transitions(states, actions, rewards, states.copy(), ends)

    def _stored(self, values: NDArray[Any], part: NDArray[Any], what: str) -> NDArray[Any]:
        """Convert values to the dataset's dtype: integers exactly, others rounded to float32."""
        if values.shape[1:] != part.shape[2:]:
            raise self._error(f"{what} have shape {values.shape[1:]} instead of {part.shape[2:]}")
        with np.errstate(invalid="ignore", over="ignore"):
            stored = values.astype(part.dtype)
        whole = np.issubdtype(part.dtype, np.integer)
        right = (stored == values).all() if whole else np.isfinite(stored).all()
        if part.ndim == 3 and what.startswith("actions"):  # vectors
            right &= (np.abs(stored) <= 1).all()
        if not right:
            raise self._error(f"{what} are not valid in {self._family.name}")
        return stored

    def _check_origin(self) -> None:
        """Check that the tasks are of the same family; T and the split may differ."""
        config = self._family.config
        origin = self._dataset.storage.metadata.get("sad_hpc")
        task = inside(origin, ["config", "task"])
        if not isinstance(task, dict):
            raise self._error("its metadata has no sad_hpc.config.task, which defines its tasks")
        if inside(origin, ["split"]) == "test":
            raise self._error("its tasks are test tasks: import a dataset of the train split")
        found, wanted = {"family": task.get("family")}, {"family": config.family}
        if found == wanted:
            same = {"horizon": config.horizon} | task
            found = resolved(build(type(config), same, f"{self._path}: task"))
            wanted = resolved(config)
            for key in ("horizon", *fields_of(type(config), Role.TASK_SPLIT)):
                found[key] = wanted[key]
        if changed := differences(found, wanted, "task"):
            raise self._error(f"its tasks differ from those of the config ({'; '.join(changed)})")

    def _check_spaces(self) -> None:
        """Check the shapes of the spaces; values are checked when they are read."""
        family = self._family
        states, actions = self._dataset.observation_space, self._dataset.action_space
        fit = {
            "observation": states.shape == self._spaces["observation"].shape,
            "action": (family.components is None and actions == self._spaces["action"])
            or (family.components is not None and actions.shape == (family.components,)),
        }
        for name, space in {"observation": states, "action": actions}.items():
            if not fit[name]:
                raise self._error(
                    f"its {name}_space is {space}; {family.name} has {self._spaces[name]}"
                )

    def _found(self) -> tuple[dict[int, list[int]], NDArray[Any]]:
        """Return the episodes of each task, in time order, and all parameters (n, p)."""
        episodes: dict[int, list[int]] = {}
        parameters: dict[int, NDArray[np.float64]] = {}
        numbers = self._dataset.episode_indices
        for number, told in zip(
            numbers.tolist(), self._dataset.storage.get_episode_metadata(numbers), strict=True
        ):
            try:
                task = operator.index(told["task_index"])
                values = np.asarray(told["task_parameters"], np.float64).reshape(-1)
            except (KeyError, TypeError, ValueError):
                raise self._error(
                    f"the metadata of episode {number} lacks task_index or task_parameters"
                ) from None
            if not np.array_equal(values, parameters.setdefault(task, values)):
                raise self._error(f"task {task} has other parameters in episode {number}")
            episodes.setdefault(task, []).append(number)
        if len({len(values) for values in parameters.values()}) != 1:
            raise self._error("it has no tasks, or tasks with different numbers of parameters")
        tasks = sorted(episodes)
        try:
            stored = self._family.stored_tasks(np.stack([parameters[task] for task in tasks]))
        except UserError as error:
            raise self._error(str(error)) from None
        return {task: episodes[task] for task in tasks}, stored

    def _error(self, text: str) -> UserError:
        return UserError(f"{self._path}: {text}")
