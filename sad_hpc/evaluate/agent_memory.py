"""The memory of an online agent: the context of its next episode, selected from past transitions.

| evaluate.memory | context                                                                       |
|-----------------|-------------------------------------------------------------------------------|
| episode         | the last transitions in time order: the previous episode (as in the paper),   |
|                 | or several for AD with `data.history_episodes`                                |
| history         | distinct transitions of all episodes in random order: rewarded ones first,    |
|                 | then a uniform draw of the others; too few are filled up with repetitions     |

Training contexts have transitions from all states.  An agent that stays on the goal for an episode
collects almost no other transitions.  Contexts from its whole history are closer to the training
contexts.
"""

from abc import ABC, abstractmethod
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from sad_hpc.distill.block import Transitions
from sad_hpc.evaluate.episode import as_context, no_transitions
from sad_hpc.model.context import Context
from sad_hpc.tasks.tabular import TabularFamily

ContextT_co = TypeVar("ContextT_co", covariant=True)


class AgentMemory(Protocol[ContextT_co]):
    """The memory of n agents."""

    @property
    def context(self) -> ContextT_co:
        """Context of the next episode."""

    @property
    def rewards(self) -> NDArray[np.int32]:
        """Numbers of rewarded transitions in the context, (n,)."""

    def add(self, episode: Transitions) -> None:
        """Add an episode (n, T), with states by number."""


class Recollection(ABC):
    """A memory whose contexts have at most `size` transitions; the first context is empty.

    Args:
        family: family of the tasks.
        n_tasks: n.
        size: largest number of transitions of a context.
    """

    def __init__(self, family: TabularFamily, n_tasks: int, size: int) -> None:
        self._family, self._size = family, size
        self._shown = no_transitions(family, n_tasks)

    @property
    def context(self) -> Context:
        """Implement `AgentMemory.context`."""
        return as_context(self._family, self._shown)

    @property
    def rewards(self) -> NDArray[np.int32]:
        """Implement `AgentMemory.rewards`."""
        return (self._shown.rewards > 0).sum(axis=1, dtype=np.int32)

    @abstractmethod
    def add(self, episode: Transitions) -> None:
        """Implement `AgentMemory.add`."""


class LastEpisode(Recollection):
    """A memory of the last `size` transitions, of the previous episode if `size` is T or less."""

    def add(self, episode: Transitions) -> None:
        """Implement `AgentMemory.add`."""
        longer = self._shown.followed_by(episode)
        self._shown = longer.map(lambda part: part[:, max(0, part.shape[1] - self._size) :])


class History(Recollection):
    """A memory that draws a context from all episodes; see `history_places`.

    Args:
        family: family of the tasks.
        n_tasks: n.
        size: number of transitions of a context.
        generator: random numbers of the draws.
    """

    def __init__(
        self, family: TabularFamily, n_tasks: int, size: int, generator: np.random.Generator
    ) -> None:
        super().__init__(family, n_tasks, size)
        self._generator = generator
        self._all = self._shown

    def add(self, episode: Transitions) -> None:
        """Implement `AgentMemory.add`."""
        self._all = self._all.followed_by(episode)
        keys = self._keys()
        rewarded = self._all.rewards > 0
        places = history_places(keys, rewarded, self._size, self._generator)
        self._shown = self._all.map(lambda part: np.take_along_axis(part, places, axis=1))

    def _keys(self) -> NDArray[np.int64]:
        """Return numbers that identify state, action and next state of transitions, (n, L)."""
        began = self._all.states.astype(np.int64) * self._family.n_actions + self._all.actions
        return began * self._family.n_states + self._all.next_states


def recollection(
    family: TabularFamily, n_tasks: int, size: int, kind: str, generator: np.random.Generator
) -> Recollection:
    """Return the memory of a kind of `evaluate.memory`; see `History`."""
    if kind == "history":
        return History(family, n_tasks, size, generator)
    return LastEpisode(family, n_tasks, size)


def history_places(
    keys: NDArray[np.int64],
    rewarded: NDArray[np.bool_],
    size: int,
    generator: np.random.Generator,
) -> NDArray[np.int64]:
    """Draw the indices of a history's transitions for a context, (n, size).

    Args:
        keys: (n, L), equal for equal transitions; for L = 0 the result is (n, 0).
        rewarded: (n, L), whether transitions are rewarded.
        size: number of transitions of a context.
        generator: random numbers of the draws.
    """
    n, length = keys.shape
    if length == 0:
        return np.empty((n, 0), np.int64)
    # Priorities: repetitions -1, distinct transitions in [0, 1), rewarded ones in [1, 2).
    priority = generator.random(keys.shape) + rewarded
    priority[~_first_of_their_kind(keys)] = -1
    order = (-priority).argsort(axis=1)[:, :size]
    distinct = (np.take_along_axis(priority, order, axis=1) >= 0).sum(axis=1, keepdims=True)
    slots = np.broadcast_to(np.arange(size), (n, size))
    repeated = (generator.random((n, size)) * distinct).astype(np.int64)
    shown = np.take_along_axis(order, np.where(slots < distinct, slots, repeated), axis=1)
    return generator.permuted(shown, axis=1)


def _first_of_their_kind(keys: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return whether a key is the first of its value in its row, (n, L)."""
    order = keys.argsort(axis=1, kind="stable")
    ordered = np.take_along_axis(keys, order, axis=1)
    new = np.ones_like(ordered, dtype=np.bool_)
    new[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    first = np.empty_like(new)
    np.put_along_axis(first, order, new, axis=1)
    return first
