"""Families of deterministic and stochastic MDPs; kernels, oracle and checks work on tables."""

import copy
import functools
from abc import abstractmethod
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sad_hpc.tasks.base import SPLITS, Arrays, TaskFamily
from sad_hpc.tasks.mdps import ActionOutcomes, FiniteMDPs, Starts, StochasticMDPs, tables_of
from sad_hpc.tasks.q_tables import optimal_q
from sad_hpc.tasks.validation import are_among, drawn_tasks

TABLE_ENTRIES = 2**23
"""Largest number of table entries (tasks x states x actions) in memory at once."""


def split_numbers(total: int, n_train: int, seed: int, split: str) -> NDArray[np.int64]:
    """Return the numbers of a split's tasks, from a seeded permutation of all of them."""
    order = np.random.default_rng(seed).permutation(total)
    return np.split(order, [n_train])[split == "test"]


class TabularFamily(TaskFamily):
    """A distribution over finite MDPs.

    States are numbers 0..S-1 in the kernels and rows of `coordinates` in a dataset.
    """

    data_revision = 2
    has_histories = True
    shares_actions = True
    has_validation = True
    takes_contexts = True
    start_state: int
    """Number of the state in which episodes start, unless `starts` is overridden."""
    n_outcomes: int = 1
    """J: the largest number of outcomes of an action."""
    coordinates: NDArray[Any]
    """(S, d) integers: the representation of states in datasets and for the model."""

    @property
    def n_states(self) -> int:
        """S, the number of states."""
        return len(self.coordinates)

    @property
    def table_entries(self) -> int:
        """Number of table entries of one task."""
        return self.n_states * self.n_actions * self.n_outcomes

    def starts(self, mdps: FiniteMDPs) -> Starts:
        """Return the start of episodes of M tasks."""
        return self.start_state

    @abstractmethod
    def distinct_tasks(self, split: str) -> NDArray[np.int16]:
        """Return the parameters of a split's distinct tasks, (M, p), which tasks repeat in turn."""

    @functools.cached_property
    def distinct(self) -> dict[str, NDArray[np.int16]]:
        """Parameters of the distinct tasks of each split."""
        return {split: self.distinct_tasks(split) for split in SPLITS}

    def n_tasks(self, split: str, total: int) -> int:
        """Return the number of tasks of a split, in proportion to its distinct tasks."""
        train = round(total * len(self.distinct["train"]) / sum(map(len, self.distinct.values())))
        return train if split == "train" else total - train

    def parameters(self, split: str, first: int, count: int) -> NDArray[np.int16]:
        """Return the parameters of tasks first .. first + count - 1 of `split`, (count, p)."""
        distinct = self.distinct[split]
        return distinct[self.distinct_numbers(len(distinct), first, count)]

    def validation_tasks(self, share: float) -> NDArray[np.int16]:
        """Return the parameters of the validation tasks, (m, p); see `drawn_tasks`."""
        seed = getattr(self.config, "split_seed", 0)
        return drawn_tasks(self.distinct["train"], share, seed)

    def n_validation(self, share: float, total: int) -> int:
        """Return how many of the first `total` training tasks are validation tasks."""
        chosen = are_among(self.distinct["train"], self.validation_tasks(share))
        return int(chosen[self.distinct_numbers(len(chosen), 0, total)].sum())

    def without(self, tasks: NDArray[np.int16]) -> "TabularFamily":
        """Return the family without some of its distinct training tasks, (m, p)."""
        train, rest = self.distinct["train"], copy.copy(self)
        rest.distinct = {**self.distinct, "train": train[~are_among(train, tasks)]}
        return rest

    def stored_tasks(self, parameters: NDArray[np.float64]) -> NDArray[np.int16]:
        """Implement `TaskFamily.stored_tasks`."""
        every = self.distinct["train"]
        number_of = {tuple(row): number for number, row in enumerate(every.tolist())}
        numbers = np.array([number_of.get(tuple(row), -1) for row in parameters.tolist()])
        if (numbers < 0).any():
            raise self.no_task(parameters[numbers.argmin()])
        return every[numbers]

    def distinct_numbers(self, distinct: int, first: int, count: int) -> NDArray[np.int64]:
        """Return the distinct task of each of tasks first .. first + count - 1, (count,)."""
        return np.arange(first, first + count) % distinct

    @abstractmethod
    def mdps(self, parameters: NDArray[np.int16]) -> FiniteMDPs:
        """Return the MDPs (M = n) of (n, p) task parameters."""

    @abstractmethod
    def optimal_actions(self, parameters: NDArray[np.int16]) -> NDArray[np.bool_]:
        """Return whether an action is optimal in a state, for (n, p) task parameters, (n, S, A)."""

    def are_optimal(
        self, parameters: NDArray[Any], query_states: NDArray[Any], actions: NDArray[Any]
    ) -> NDArray[np.bool_]:
        """Implement `TaskFamily.are_optimal`.

        Raises:
            KeyError: a query state is not a state of this family.
            IndexError: an action is not an action of this family.
        """
        if not self.has_actions(actions):
            raise IndexError("actions outside of the action space")
        distinct, number = np.unique(parameters, axis=0, return_inverse=True)
        states, number = self.state_numbers(query_states), number.reshape(-1)
        result = np.empty(actions.shape, np.bool_)
        for some in self._at_once(len(distinct)):
            rows = np.flatnonzero((number >= some.start) & (number < some.stop))
            tables = self.optimal_actions(distinct[some])
            here = number[rows, None] - some.start
            result[rows] = tables[here, states[rows], actions[rows]]
        return result

    def dynamics_faults(
        self, parameters: NDArray[Any], group: str, context: Arrays, cut: bool = False
    ) -> list[str]:
        """Check by replay that next states and rewards of contexts follow from the MDPs."""
        faults = {
            fault: None  # in order, each once
            for some in self._at_once(len(parameters))
            for fault in self._faults(
                parameters[some], group, {part: array[some] for part, array in context.items()}, cut
            )
        }
        return list(faults)

    def _at_once(self, tasks: int) -> Iterator[slice]:
        """Yield slices of 0..tasks-1 whose tables have at most TABLE_ENTRIES entries."""
        size = max(1, TABLE_ENTRIES // self.table_entries)
        for first in range(0, tasks, size):
            yield slice(first, min(first + size, tasks))

    def _faults(
        self, parameters: NDArray[Any], group: str, context: Arrays, cut: bool
    ) -> list[str]:
        mdps = self.mdps(parameters)
        task, ends = np.arange(len(parameters))[:, None], context.get("ends")
        if not self.has_actions(context["actions"]):
            return [f"{group} holds states or actions that {self.name} does not have"]
        try:
            states = self.state_numbers(context["states"])
            next_states = self.state_numbers(context["next_states"])
        except (KeyError, IndexError):
            return [f"{group} holds states or actions that {self.name} does not have"]
        may = mdps.outcomes.at(task, states, context["actions"])
        be = mdps.occupied[task, states]
        faults = []
        happened = may.equal(context["rewards"], next_states, ends) & (may.chances > 0)
        if not (happened.any(axis=-1) & be).all():
            faults.append(f"{group} breaks the dynamics of {self.name}")
        follows = states[:, 1:] == next_states[:, :-1]
        starts = self.starts(mdps)
        can_start = states == starts if isinstance(starts, int) else starts[task, states] > 0
        if ends is not None:  # a new episode begins after an end only
            follows = np.where(ends[:, :-1] != 0, can_start[:, 1:], follows)
        if cut:
            follows |= can_start[:, 1:]
        if group == "episodes" and not follows.all():
            faults.append("episodes are not in time order")
        return faults

    def state_numbers(self, coordinates: NDArray[Any]) -> NDArray[np.int64]:
        """Convert coordinates (..., d) to state numbers (...).

        Raises:
            KeyError: a row is not a state of this family.
        """
        lookup = np.full(self.coordinates.max(axis=0).astype(int) + 1, -1, dtype=np.int64)
        lookup[tuple(self.coordinates.T)] = np.arange(self.n_states)
        axes = tuple(np.moveaxis(coordinates, -1, 0))
        if any(
            ((axis < 0) | (axis >= size)).any()
            for axis, size in zip(axes, lookup.shape, strict=True)
        ):
            raise KeyError("coordinates outside of the state space")
        numbers = lookup[axes]
        if (numbers < 0).any():
            raise KeyError("coordinates outside of the state space")
        return numbers


OPTIMAL_ERROR = 1e-9
"""TD error of the optimal Q.  Actions with equal values within `QTables.margin` are optimal."""


class StochasticFamily(TabularFamily):
    """A distribution over finite MDPs with random steps and ends.

    A subclass defines `outcomes_of` and `coordinates`.
    """

    has_histories = False
    has_ends = True
    certain = False
    discount: float = 0.99
    """gamma of the returns that optimal actions maximize."""

    @abstractmethod
    def outcomes_of(
        self, parameters: NDArray[Any]
    ) -> tuple[ActionOutcomes, NDArray[np.float64]]:  # fmt: skip
        """Return the outcomes by state and action, and the start probabilities (s,), of a task."""

    def mdps(self, parameters: NDArray[Any]) -> StochasticMDPs:
        """Implement `TabularFamily.mdps`."""
        return _tables(self, parameters.tobytes(), parameters.shape, parameters.dtype.str)

    def starts(self, mdps: FiniteMDPs) -> Starts:
        """Implement `TabularFamily.starts`."""
        assert isinstance(mdps, StochasticMDPs)
        return mdps.starts

    def optimal_actions(self, parameters: NDArray[Any]) -> NDArray[np.bool_]:
        """Return the optimal actions, (n, S, A), by value iteration."""
        return _optimal(self, parameters.tobytes(), parameters.shape, parameters.dtype.str)


# Cached because every block and check uses the same tasks, and reading dictionaries is slow.
@functools.lru_cache(maxsize=4)
def _tables(
    family: StochasticFamily, content: bytes, shape: tuple[int, ...], dtype: str
) -> StochasticMDPs:
    parameters = np.frombuffer(content, dtype).reshape(shape)
    # Equal tasks have equal tables, which are built once.
    distinct, which = np.unique(parameters, axis=0, return_inverse=True)
    tasks = [family.outcomes_of(each) for each in distinct]
    outcomes, starts = [task[0] for task in tasks], [task[1] for task in tasks]
    tables, which = tables_of(outcomes, starts, family.n_states), which.reshape(-1)
    return StochasticMDPs(tables.may.at(which), tables.starts[which])


@functools.lru_cache(maxsize=4)
def _optimal(family: StochasticFamily, *parameters: Any) -> NDArray[np.bool_]:
    tables = _tables(family, *parameters)
    return optimal_q(tables, family.discount, OPTIMAL_ERROR).best_actions()
