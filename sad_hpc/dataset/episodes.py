"""Logged episodes of any Minari dataset, as transitions in a dataset's numbers."""

import operator
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from sad_hpc.dataset.minari_folder import inside, opened, readable
from sad_hpc.distill.block import Transitions
from sad_hpc.errors import ConfigError, UserError, described
from sad_hpc.experiment.numbers import in_range, reward_fault
from sad_hpc.tasks.environments.actions import actions_of
from sad_hpc.tasks.environments.observations import Observations, first_out_of_range
from sad_hpc.tasks.simulated import Spaces

CONTENT = ("observations", "infos")
"""First words of keys that name values of each step; other keys are of episodes' metadata."""


class LoggedEpisodes:
    """The episodes of a Minari dataset.

    Args:
        path: its folder.

    Raises:
        UserError: Minari is not installed, the dataset is missing, or a space is not supported.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        with readable(path):
            self._dataset = opened(path)
            self.spaces: Spaces = (self._dataset.observation_space, self._dataset.action_space)
        try:
            self.observations = Observations(self.spaces[0])
            self.actions = actions_of(self.spaces[1])
        except ConfigError as error:
            raise UserError(f"{path}: {error}") from None
        self._last: tuple[int, Any] | None = None

    def tasks(self, key: str | None) -> Iterator[tuple[int, str, int]]:
        """Yield number, task and number of steps of each episode.

        Args:
            key: name of the value that tells tasks apart: of the episodes' metadata, or one that
                is constant in an episode, such as `infos/task`.  None: all are of one task.

        Raises:
            UserError: an episode lacks the value, or has several.
        """
        with readable(self.path):
            numbers = self._dataset.episode_indices.tolist()
            all_told = self._dataset.storage.get_episode_metadata(numbers)
            for number, told in zip(numbers, all_told, strict=True):
                steps = operator.index(told["total_steps"])
                if steps < 0:
                    raise ValueError(f"episode {number} has {steps} steps")
                yield number, "" if key is None else self._task(number, told, key), steps

    def _task(self, number: int, told: dict[str, Any], key: str) -> str:
        """Return an episode's value of a key as a text."""
        words = key.split("/")
        if words[0] not in CONTENT:
            value = inside(told, words)
            if value is None:
                raise self._error(
                    f"the metadata of episode {number} has no {key}, only {list(told)}"
                )
            return repr(np.asarray(value).tolist())
        content = self._content(number)
        value = inside(getattr(content, words[0]), words[1:])
        if not isinstance(value, np.ndarray) or not len(value):
            infos = [f"infos/{name}" for name in content.infos or ()]
            raise self._error(f"episode {number} has no {key}; its infos: {infos}")
        if (value != value[0]).any():
            raise self._error(f"{key} changes within episode {number}: give a key that does not")
        first = value[0]
        return repr(first.tolist() if isinstance(first, np.generic | np.ndarray) else first)

    def copy(self, number: int, first: int, place: Transitions) -> None:
        """Copy transitions of an episode, from step `first` on, into arrays (m, ...).

        An episode that is terminated or truncated has ended.

        Raises:
            UserError: the episode cannot be read, or has a number or an action that is not valid.
        """
        steps = slice(first, first + len(place.rewards))
        with readable(self.path):
            content = self._content(number)
            seen = np.zeros((len(place.rewards) + 1, *self.observations.shape), place.states.dtype)
            for row, step in enumerate(range(first, steps.stop + 1)):
                try:
                    self.observations.write(_at(content.observations, step), seen[row])
                    if step < steps.stop:
                        place.actions[row] = self.actions.given(_at(content.actions, step))
                except (ValueError, TypeError, LookupError) as error:
                    fault = described(error)
                    raise self._error(f"episode {number}, step {step}: {fault}") from error
            for row in np.flatnonzero(~in_range(seen).reshape(len(seen), -1).all(axis=1)).tolist():
                fault = first_out_of_range(seen[row])
                raise self._error(f"episode {number}, step {first + row}: {fault}")
            rewards = np.asarray(content.rewards[steps], np.float64)
            for row in np.flatnonzero(~in_range(rewards)).tolist():
                fault = reward_fault(rewards[row], sparse=False) or ""
                raise self._error(f"episode {number}, step {first + row}: {fault}")
            ended = np.logical_or(content.terminations[steps], content.truncations[steps])
            columns = {
                "states": seen[:-1],
                "next_states": seen[1:],
                "rewards": rewards,
                "ends": ended,
            }
            for name, values in columns.items():
                part = place.parts[name]
                if values.shape != part.shape:
                    raise self._error(f"episode {number} has too few {name}")
                part[:] = values

    def _content(self, number: int) -> Any:
        """Return an episode's content; successive calls are often for the same one."""
        if self._last is None or self._last[0] != number:
            self._last = number, next(iter(self._dataset.iterate_episodes([number])))
        return self._last[1]

    def _error(self, text: str) -> UserError:
        return UserError(f"{self.path}: {text:.600}")


def _at(values: Any, step: int) -> Any:
    """Return the value of a step in arrays of all steps, nested as a space is."""
    if isinstance(values, dict):
        return {name: _at(part, step) for name, part in values.items()}
    if isinstance(values, tuple):
        return tuple(_at(part, step) for part in values)
    return values[step]
