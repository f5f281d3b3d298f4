"""Families whose tasks are simulators that can be copied in the middle of an episode.

Label rollouts (Algorithms 3 and 5) begin in a query state again and again.  Where a simulator's
states are not numbered, it must be copied there: that is all that SAD asks of an environment.
"""

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sad_hpc.tasks.base import TaskFamily


class Simulators(ABC):
    """n simulators side by side, each in an episode of its own.

    There is no time limit: whoever steps them counts.  An episode that has ended stays where it is,
    with rewards of 0, until it is started again.
    """

    observations: NDArray[np.float32]
    """(n, d): what is seen of the states now."""
    ended: NDArray[np.bool_]
    """(n,): whether a terminal state was reached."""

    @abstractmethod
    def start(self, rows: NDArray[np.int64], generator: np.random.Generator) -> None:
        """Starts new episodes in simulators `rows` (m,), seeded by draws of the generator."""

    @abstractmethod
    def step(self, actions: NDArray[Any]) -> NDArray[np.float32]:
        """Takes an action (n,) in each simulator.

        Returns:
            rewards (n,).
        """

    @abstractmethod
    def copied(self, rows: NDArray[np.int64], generator: np.random.Generator) -> "Simulators":
        """m simulators in the states of `rows` (m,), which may have repetitions.

        What happens in a copy changes nothing in its origin.  Where steps are random, each copy
        goes on by random numbers of its own, drawn from the generator.
        """


class SimulatedFamily(TaskFamily):
    """A distribution over simulators, of which nothing else is known."""

    context_groups = ("context",)

    @abstractmethod
    def parameters(self, split: str, first: int, count: int) -> NDArray[Any]:
        """(count, p): parameters of tasks first .. first + count - 1 of `split`."""

    @abstractmethod
    def simulators(self, parameters: NDArray[Any], generator: np.random.Generator) -> Simulators:
        """n simulators of tasks with parameters (n, p), at the start of an episode."""
