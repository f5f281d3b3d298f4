"""Logged tasks: the episodes of a Minari dataset as contexts of a family's training tasks.

It has what `interchange` writes: each episode's metadata names its task (`task_index`) and has its
`task_parameters`; that of the dataset says under `sad_hpc` what they are parameters of, in
`config`, `task`.
"""

import operator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sad_hpc.dataset.interchange import action_space, observation_space
from sad_hpc.dataset.minari_folder import opened, readable
from sad_hpc.distill.block import Given, Transitions
from sad_hpc.errors import UserError
from sad_hpc.experiment.config import Role, build, differences, fields_of, resolved
from sad_hpc.tasks.base import TaskFamily


class LoggedTasks:
    """The tasks of a Minari dataset, in the order of their indices.

    Args:
        path: its folder, such as my-datasets/darkroom-train-v0.
        family: of the tasks.

    Raises:
        UserError: Minari is not installed, there is no dataset, it does not say what its tasks are,
            or they are no training tasks of the family.
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
        """How many tasks there are."""
        return len(self._tasks)

    def given(self, first: int, count: int) -> Given:
        """Tasks first .. first + count - 1 with the first T transitions of each.

        Raises:
            UserError: a task has fewer, or they cannot have come from it.
        """
        rows = slice(first, first + count)
        tasks, parameters = list(self._tasks.items())[rows], self._parameters[rows]
        with readable(self._path):
            context = self._context(tasks)
        # Logged episodes may end anywhere, as windows of Q-learning's histories do.
        if faults := self._family.dynamics_faults(parameters, "episodes", context.parts, cut=True):
            raise self._error(f"tasks {tasks[0][0]} to {tasks[-1][0]} do not fit: {faults[0]}")
        return Given(parameters, context)

    def _context(self, tasks: list[tuple[int, list[int]]]) -> Transitions:
        """Return the first transitions of tasks, each with the numbers of its episodes, (n, T)."""
        horizon, result = self._family.config.horizon, self._empty(len(tasks))
        found = np.zeros(len(tasks), np.int64)
        row_of_episode = {number: row for row, (_, mine) in enumerate(tasks) for number in mine}
        episodes = self._dataset.iterate_episodes(list(row_of_episode))
        for (number, row), episode in zip(row_of_episode.items(), episodes, strict=True):
            steps = len(episode.rewards)
            if not len(episode.observations) - 1 == len(episode.actions) == steps:
                raise self._error(f"episode {number} has not an action and a reward for each step")
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
        """Contexts (count, T) to be filled."""
        family, shape = self._family, (count, self._family.config.horizon)
        state = self._spaces["observation"]
        states = np.zeros((*shape, *state.shape), state.dtype)
        vector = () if family.components is None else (family.components,)
        actions = np.zeros((*shape, *vector), family.action_dtype)
        rewards = np.zeros(shape, family.reward_dtype)
        ends = np.zeros(shape, np.uint8) if family.has_ends else None
        return Transitions(states, actions, rewards, states.copy(), ends)

    def _stored(self, values: NDArray[Any], part: NDArray[Any], what: str) -> NDArray[Any]:
        """Values as the dataset has them: whole numbers exactly, others rounded to float32."""
        if values.shape[1:] != part.shape[2:]:
            raise self._error(f"{what} have shape {values.shape[1:]} instead of {part.shape[2:]}")
        with np.errstate(invalid="ignore", over="ignore"):
            stored = values.astype(part.dtype)
        whole = np.issubdtype(part.dtype, np.integer)
        right = (stored == values).all() if whole else np.isfinite(stored).all()
        if part.ndim == 3 and what.startswith("actions"):  # vectors
            right &= (np.abs(stored) <= 1).all()
        if not right:
            raise self._error(f"{what} are none of {self._family.name}")
        return stored

    def _check_origin(self) -> None:
        """Check that the tasks are of the same family; T and the split may differ."""
        config = self._family.config
        origin = self._dataset.storage.metadata.get("sad_hpc")
        task = _inside(origin, "config", "task")
        if not isinstance(task, dict):
            raise self._error(
                "its metadata has no sad_hpc.config.task, which says what its tasks are"
            )
        if _inside(origin, "split") == "test":
            raise self._error("its tasks are for test, and must not be trained on")
        found, wanted = {"family": task.get("family")}, {"family": config.family}
        if found == wanted:
            same = {"horizon": config.horizon} | task
            found = resolved(build(type(config), same, f"{self._path}: task"))
            wanted = resolved(config)
            for key in ("horizon", *fields_of(type(config), Role.TASK_SPLIT)):
                found[key] = wanted[key]
        if changed := differences(found, wanted, "task"):
            raise self._error(f"its tasks are others than those asked for ({'; '.join(changed)})")

    def _check_spaces(self) -> None:
        """What numbers are possible is checked where they are read."""
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
        """The episodes of each task, in time order, and the parameters (n, p) of all."""
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
                    f"the metadata of episode {number} has no task_index or no task_parameters"
                ) from None
            if not np.array_equal(values, parameters.setdefault(task, values)):
                raise self._error(f"task {task} has other parameters in episode {number}")
            episodes.setdefault(task, []).append(number)
        if len({len(values) for values in parameters.values()}) != 1:
            raise self._error("it has no tasks, or some with more parameters than others")
        tasks = sorted(episodes)
        try:
            stored = self._family.stored_tasks(np.stack([parameters[task] for task in tasks]))
        except UserError as error:
            raise self._error(str(error)) from None
        return {task: episodes[task] for task in tasks}, stored

    def _error(self, text: str) -> UserError:
        return UserError(f"{self._path}: {text}")


def _inside(mapping: Any, *keys: str) -> Any:
    """What lies under keys in mappings of a stranger's; None: nothing."""
    for key in keys:
        mapping = mapping.get(key) if isinstance(mapping, dict) else None
    return mapping
