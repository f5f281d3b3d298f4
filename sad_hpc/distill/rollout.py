"""Rollouts in simulators: the policies that act, and the recorded transitions."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sad_hpc.distill.block import Transitions
from sad_hpc.distill.labels import LabelRule
from sad_hpc.kernels.interruption import STOP_FLAG, Interrupted
from sad_hpc.tasks.simulated import SimulatedFamily, Simulators

Act = Callable[[Simulators, int], NDArray[Any]]
"""Map n simulators at step t to actions (n,), or to vectors (n, a)."""


@dataclass(frozen=True)
class Following:
    """The incumbent in m simulators: the model of the round before, which label rollouts follow."""

    act: Act
    """Its actions in rollouts."""
    likeliest: Callable[[NDArray[Any]], NDArray[Any]]
    """A function from observations (m, ...) to its likeliest actions (m,) or (m, a)."""
    drawn: Callable[[NDArray[Any]], NDArray[Any]]
    """A function from observations (m, ...) to draws of its actions at temperature 1."""


Followings = Callable[[NDArray[np.int64]], Following]
"""Map tasks (m,), possibly repeated, to the incumbent in one simulator of each."""


@dataclass(frozen=True)
class Behavior:
    """The behavior policy: numbers drawn from a table, or uniform vectors in [-1, 1]^a."""

    table: NDArray[Any]
    """(K,) actions whose uniform draws follow the policy; see `policy_table`."""
    n_actions: int
    components: int | None
    """a; None: actions are numbers."""

    @classmethod
    def of(cls, family: SimulatedFamily, table: NDArray[Any]) -> "Behavior":
        """Return the behavior policy of a family."""
        return cls(table, family.n_actions, family.components)

    def draw(self, count: int, generator: np.random.Generator) -> NDArray[Any]:
        """Draw actions, (count,) or (count, a)."""
        if self.components is None:
            return self.table[generator.integers(len(self.table), size=count)]
        return generator.uniform(-1, 1, (count, self.components)).astype(np.float32)

    def act(self, generator: np.random.Generator) -> Act:
        """Return the policy as an `Act`."""
        return lambda simulators, step: self.draw(len(simulators.ended), generator)

    def candidates(
        self, count: int, rule: LabelRule, generator: np.random.Generator
    ) -> NDArray[Any]:
        """Return C first actions to try in each query state, (count, C) or (count, C, a)."""
        if self.components is None:
            return np.tile(np.arange(self.n_actions, dtype=self.table.dtype), (count, 1))
        drawn = self.draw(count * rule.candidates, generator)
        return drawn.reshape(count, rule.candidates, self.components)


def rollout(
    simulators: Simulators, horizon: int, act: Act, generator: np.random.Generator
) -> Transitions:
    """Return T transitions of each of n simulators (n, T) in time order, restarting ended episodes.

    Raises:
        Interrupted: STOP_FLAG was set.
    """
    steps = []
    for step in range(horizon):
        if STOP_FLAG[0]:
            raise Interrupted
        simulators.start(np.flatnonzero(simulators.ended), generator)
        states, actions = simulators.observations.copy(), act(simulators, step)
        rewards = simulators.step(actions)
        after = simulators.observations.copy(), simulators.ended.astype(np.uint8)
        steps.append((states, actions, rewards, *after))
    columns = (np.stack(column, axis=1) for column in zip(*steps, strict=True))
    states, actions, rewards, next_states, ends = columns
    return Transitions(states, actions, rewards, next_states, ends)
