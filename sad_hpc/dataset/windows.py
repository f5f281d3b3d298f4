"""Windows: contexts of T successive transitions from logged episodes of tasks without parameters.

A task is a Minari dataset, or all episodes with the same value of a key.  Its episodes follow one
another in the order of their numbers, and windows divide them without overlap.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from operator import itemgetter
from pathlib import Path

import numpy as np

from sad_hpc.dataset.episodes import LoggedEpisodes
from sad_hpc.distill.block import Given, Transitions
from sad_hpc.errors import UserError
from sad_hpc.experiment.numbers import action_dtype, reward_fault
from sad_hpc.tasks.simulated import SimulatedFamily

Episode = tuple[LoggedEpisodes, int]
"""A dataset, and the number of an episode in it."""


@dataclass
class LoggedTask:
    """A task's episodes in time order."""

    episodes: list[Episode] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    """Number of the task's transitions up to the end of each episode."""

    def add(self, episode: Episode, steps: int) -> None:
        """Add the next episode."""
        self.episodes.append(episode)
        self.ends.append((self.ends[-1] if self.ends else 0) + steps)

    def pieces(self, first: int, count: int) -> Iterator[tuple[Episode, int, slice]]:
        """Yield the parts of episodes that make up `count` transitions from `first` on.

        Yields:
            the episode, the part's first step in it, and the part's place in the window.
        """
        at, last = first, first + count
        for number in range(bisect_right(self.ends, first), len(self.ends)):
            start = self.ends[number - 1] if number else 0
            end = min(self.ends[number], last)
            if end > at:
                yield self.episodes[number], at - start, slice(at - first, end - first)
                at = end


class Windows:
    """Windows of T transitions in Minari datasets, evenly spread over tasks and time.

    Windows of a task are successive rows.

    Args:
        paths: folders of the datasets, which have the same spaces.
        key: name of the value that tells tasks apart (see `LoggedEpisodes.tasks`).  None: each
            dataset is a task.
        horizon: T.
        count: number of windows.

    Raises:
        UserError: see `LoggedEpisodes`; or there are too few windows or tasks, or the datasets
            have different spaces.
    """

    def __init__(self, paths: Sequence[Path], key: str | None, horizon: int, count: int) -> None:
        self._horizon = horizon
        self._datasets = [LoggedEpisodes(path) for path in paths]
        self.first = self._datasets[0]
        """The first dataset."""
        for other in self._datasets[1:]:
            if other.spaces != self.first.spaces:
                raise UserError(
                    f"{other.path} has the spaces {other.spaces}, but {self.first.path} has "
                    f"{self.first.spaces}"
                )
        self._tasks = self._found(key)
        counts = [task.ends[-1] // horizon for task in self._tasks]
        self._totals = list(accumulate(counts, initial=0))
        n_long = sum(map(bool, counts))
        self.n_short = len(counts) - n_long
        """Number of tasks with fewer than T transitions, which have no window."""
        total = self._totals[-1]
        if total < count:
            raise UserError(
                f"{self.first.path}: the logs have {total} contexts of task.horizon={horizon} "
                f"transitions, but data.tasks needs {count} for training: lower one of them"
            )
        if n_long < 2:
            raise UserError(
                f"{self.first.path}: {n_long} of {len(counts)} tasks have task.horizon="
                f"{horizon} transitions, but two are needed: give several datasets, or by "
                "--task-key the name of a value that tells tasks apart"
            )
        self._chosen = [row * total // count for row in range(count)]
        self.tasks = np.searchsorted(self._totals, self._chosen, side="right") - 1
        """(count,) numbers of the windows' tasks."""

    def __len__(self) -> int:
        """Return the number of windows."""
        return len(self._chosen)

    def check_fits(self, family: SimulatedFamily) -> None:
        """Check that the logs are of a family's environment.

        Raises:
            UserError: the spaces differ.
        """
        seen, actions = self.first.observations.shape, self.first.actions
        alike = seen == family.state_shape and (
            actions.count == family.n_actions
            if family.components is None
            else actions.size == family.components
        )
        if not alike or family.spaces not in (None, self.first.spaces):
            wanted = family.spaces or family.description
            raise UserError(
                f"{self.first.path} has the spaces {self.first.spaces}, but {family.name} has "
                f"{wanted}: set task to the environment that was logged"
            )

    def given(self, rows: Sequence[int], sparse: bool = False) -> Given:
        """Return some windows, with the numbers of their tasks as parameters (n, 1).

        Args:
            rows: (n,) numbers of windows.
            sparse: whether all rewards must be 0 or 1.

        Raises:
            UserError: an episode cannot be read, or has a number or an action that is not valid.
        """
        context = self._empty(len(rows))
        tasks = self.tasks[rows]
        for place, (row, task) in enumerate(zip(rows, tasks, strict=True)):
            first = (self._chosen[row] - self._totals[task]) * self._horizon
            for (dataset, number), step, steps in self._tasks[task].pieces(first, self._horizon):
                dataset.copy(number, step, context.map(itemgetter((place, steps))))
        for reward in context.rewards[~np.isin(context.rewards, (0, 1))] if sparse else ():
            raise UserError(f"{self.first.path}: {reward_fault(reward, sparse=True)}")
        return Given(tasks[:, None], context)

    def _found(self, key: str | None) -> list[LoggedTask]:
        """Return the tasks in the order of their first episodes."""
        tasks: dict[str, LoggedTask] = {}
        for place, dataset in enumerate(self._datasets):
            for number, task, steps in dataset.tasks(key):
                known = tasks.setdefault(str(place) if key is None else task, LoggedTask())
                known.add((dataset, number), steps)
        return list(tasks.values())

    def _empty(self, count: int) -> Transitions:
        """Allocate contexts (count, T)."""
        shape, actions = (count, self._horizon), self.first.actions
        seen = self.first.observations
        states = np.zeros((*shape, *seen.shape), seen.dtype)
        vector = (actions.size,) if actions.size else ()
        taken = np.zeros((*shape, *vector), np.float32 if vector else action_dtype(actions.count))
        rewards, ends = np.zeros(shape, np.float32), np.zeros(shape, np.uint8)
        return Transitions(states, taken, rewards, states.copy(), ends)
