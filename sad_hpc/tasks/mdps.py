"""Tables of finite MDPs, deterministic or stochastic."""

import functools
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sad_hpc.errors import UserError
from sad_hpc.experiment.numbers import MOST_STATES, NOT_IN_RANGE, is_in_range

Outcome = tuple[float, int, float, bool]
"""Probability, next state, reward, and whether the episode ends."""
ActionOutcomes = Mapping[int, Mapping[int, Sequence[Outcome]]]
"""Outcomes by state and action, as in `env.unwrapped.P` of Gymnasium's toy-text environments."""

Starts = int | NDArray[np.float64]
"""Start of episodes: one state, or probabilities (M, S)."""

SUM_TOLERANCE = 1e-6
"""Largest deviation from 1 of the summed probabilities of an action's outcomes."""


class Outcomes(NamedTuple):
    """Up to J outcomes of each action in each state; those of probability 0 come last."""

    chances: NDArray[np.float64]
    """(M, S, A, J)"""
    next_states: NDArray[np.uint16]
    """(M, S, A, J)"""
    rewards: NDArray[np.float32]
    """(M, S, A, J)"""
    ends: NDArray[np.bool_]
    """(M, S, A, J): whether the episode ends with the transition."""

    def at(self, *key: NDArray[Any]) -> "Outcomes":
        """Return the outcomes of some tasks, states and actions."""
        return Outcomes(*(part[key] for part in self))

    def equal(
        self,
        rewards: NDArray[Any],
        next_states: NDArray[Any],
        ends: NDArray[Any] | None,
    ) -> NDArray[np.bool_]:
        """Return which outcomes equal observed ones, (..., J); `ends` None: no episode ended."""
        same: NDArray[np.bool_] = self.rewards == rewards[..., None]
        same &= self.next_states == next_states[..., None]
        return same & (self.ends == (False if ends is None else ends[..., None] != 0))


class FiniteMDPs(ABC):
    """M MDPs over the same S states and A actions."""

    @property
    @abstractmethod
    def outcomes(self) -> Outcomes:
        """Outcomes of all actions in all states."""

    @property
    @abstractmethod
    def occupied(self) -> NDArray[np.bool_]:
        """(M, S), true where an episode can visit a state and continue from it."""

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Numbers of tasks, states and actions: M, S, A."""
        n_tasks, n_states, n_actions = self.outcomes.rewards.shape[:3]
        return n_tasks, n_states, n_actions

    def action_values(
        self, values: NDArray[np.float64], discount: float = 1.0
    ) -> NDArray[np.float64]:
        """Return the expected reward plus discounted value of the next state, (M, S, A).

        Args:
            values: (M, S) of states; nothing is added after the end of an episode.
            discount: gamma.
        """
        may = self.outcomes
        task = np.arange(len(values))[:, None, None, None]
        later = discount * values[task, may.next_states] * ~may.ends
        expected: NDArray[np.float64] = (may.chances * (may.rewards + later)).sum(axis=-1)
        return expected

    def draw(
        self,
        tasks: NDArray[np.int64],
        states: NDArray[np.int64],
        actions: NDArray[np.int64],
        generator: np.random.Generator,
    ) -> tuple[NDArray[np.int64], NDArray[np.float32], NDArray[np.bool_]]:
        """Draw next states, rewards and ends (n,); certain outcomes use no random number."""
        may = self.outcomes.at(tasks, states, actions)
        key = np.arange(len(tasks)), drawn(may.chances, generator)
        return may.next_states[key].astype(np.int64), may.rewards[key], may.ends[key]


@dataclass(frozen=True)
class TabularMDPs(FiniteMDPs):
    """M deterministic MDPs over the same S states and A actions; their episodes never end."""

    next_states: NDArray[np.uint16]
    """(M, S, A)"""
    rewards: NDArray[np.float32]
    """(M, S, A): the reward of taking the action in the state."""

    @property
    def outcomes(self) -> Outcomes:
        """Implement `FiniteMDPs.outcomes`; J = 1."""
        shape = (*self.rewards.shape, 1)
        return Outcomes(
            np.broadcast_to(1.0, shape),
            self.next_states[..., None],
            self.rewards[..., None],
            np.broadcast_to(np.False_, shape),
        )

    @property
    def occupied(self) -> NDArray[np.bool_]:
        """Implement `FiniteMDPs.occupied`; True for every state."""
        return np.broadcast_to(np.True_, self.rewards.shape[:2])

    def action_values(
        self, values: NDArray[np.float64], discount: float = 1.0
    ) -> NDArray[np.float64]:
        """Implement `FiniteMDPs.action_values`."""
        task = np.arange(len(values))[:, None, None]
        expected: NDArray[np.float64] = self.rewards + discount * values[task, self.next_states]
        return expected


@dataclass(frozen=True)
class StochasticMDPs(FiniteMDPs):
    """M MDPs whose actions can have several outcomes and whose episodes can end."""

    may: Outcomes
    starts: NDArray[np.float64]
    """(M, S): probability that an episode begins in a state."""

    @property
    def outcomes(self) -> Outcomes:
        """Implement `FiniteMDPs.outcomes`."""
        return self.may

    @functools.cached_property
    def occupied(self) -> NDArray[np.bool_]:
        """Implement `FiniteMDPs.occupied`; True for states that can be reached from a start."""
        found: NDArray[np.bool_] = self.starts > 0
        goes_on = (self.may.chances > 0) & ~self.may.ends
        while True:
            leads = goes_on & found[:, :, None, None]
            larger = found.copy()
            larger[np.nonzero(leads)[0], self.may.next_states[leads]] = True
            if (larger == found).all():
                return found
            found = larger


def drawn(chances: NDArray[np.float64], generator: np.random.Generator) -> NDArray[np.int64]:
    """Draw one of K by probabilities (n, K), as (n,); certain outcomes use no random number."""
    if (chances.max(axis=1) == 1).all():
        return chances.argmax(axis=1)
    return (bounds(chances) <= generator.random(len(chances))[:, None]).sum(axis=1)


def bounds(chances: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the cumulative probabilities of K outcomes, (..., K).

    A number u from [0, 1) selects the first outcome whose bound is above u.  From the last possible
    outcome on the bounds are exactly 1, despite rounding.
    """
    possible = chances > 0
    later = np.flip(np.flip(possible, axis=-1).cumsum(axis=-1), axis=-1) > possible
    return np.where(later, np.minimum(chances.cumsum(axis=-1), 1.0), 1.0)


def tables_of(
    tasks: Sequence[ActionOutcomes],
    starts: Sequence[NDArray[np.float64]],
    n_states: int | None = None,
) -> StochasticMDPs:
    """Build the tables of M tasks from dictionaries such as `env.unwrapped.P`.

    Equal outcomes of an action become one with the sum of their probabilities.  A state that a task
    lacks and others have is one that no episode visits.

    Args:
        tasks: for each task the outcomes by state and action.
        starts: for each task the probability (s,) that an episode begins in a state, such as
            `env.unwrapped.initial_state_distrib`.
        n_states: S; default: the states of the largest task.

    Raises:
        UserError: there are too many states, probabilities do not add up to 1, a state does not
            exist, or a reward is not finite.
    """
    size = n_states or max(len(task) for task in tasks)
    if size > MOST_STATES:
        raise UserError(f"{size:,} states are too many for a table: at most {MOST_STATES:,}")
    n_actions = max(len(actions) for task in tasks for actions in task.values())
    merged = [
        [[_merged(task, s, a, size) for a in range(n_actions)] for s in range(size)]
        for task in tasks
    ]
    most = max(len(each) for task in merged for state in task for each in state)
    shape = (len(tasks), size, n_actions, most)
    may = Outcomes(
        np.zeros(shape), np.zeros(shape, np.uint16), np.zeros(shape, np.float32),
        np.ones(shape, np.bool_),
    )  # fmt: skip
    parts: tuple[NDArray[Any], ...] = may
    for m, task in enumerate(merged):
        for s, state in enumerate(task):
            for a, outcomes in enumerate(state):
                for part, column in zip(parts, zip(*outcomes, strict=True), strict=True):
                    part[m, s, a, : len(outcomes)] = column
    begins = np.zeros((len(tasks), size))
    for m, law in enumerate(starts):
        if np.min(law) < 0 or not abs(np.sum(law) - 1) <= SUM_TOLERANCE:
            raise UserError(f"task {m}: the probabilities of start states do not add up to 1")
        begins[m, : len(law)] = np.asarray(law, np.float64) / np.sum(law, dtype=np.float64)
    return StochasticMDPs(may, begins)


def _merged(task: ActionOutcomes, state: int, action: int, n_states: int) -> list[Outcome]:
    """Return the possible outcomes of an action, each once, the most likely first."""
    if state not in task:
        return [(1.0, state, 0.0, True)]
    where = f"state {state}, action {action}"
    if action not in task[state]:
        raise UserError(f"{where}: outcomes are missing, but other states have this action")
    chances: dict[tuple[int, float, bool], float] = {}
    for chance, after, reward, ends in task[state][action]:
        if not 0 <= after < n_states:
            raise UserError(f"{where}: next state {after} is not in 0..{n_states - 1}")
        if not is_in_range(reward):
            raise UserError(f"{where}: reward {reward:g}, {NOT_IN_RANGE}")
        if not chance >= 0:
            raise UserError(f"{where}: probability {chance} is not a number from 0 to 1")
        key = int(after), float(reward), bool(ends)
        chances[key] = chances.get(key, 0.0) + float(chance)
    total = sum(chances.values())
    if not abs(total - 1) <= SUM_TOLERANCE:
        raise UserError(f"{where}: the probabilities of its outcomes add up to {total:g}, not to 1")
    likely = sorted(chances.items(), key=lambda item: -item[1])
    return [(chance / total, *key) for key, chance in likely if chance > 0]
