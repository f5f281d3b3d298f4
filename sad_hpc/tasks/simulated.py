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
    """A distribution over simulators, of which nothing else is known.

    Observations are what the model sees of states.  Contexts are rollouts of the behavior policy,
    one episode after another: other states cannot be drawn.  Which actions are optimal is not
    known, so there are no labels of an oracle.
    """

    certain = False
    has_ends = True
    takes_contexts = True
    follows_models = True
    reward_dtype = np.float32
    context_groups = ("context",)
    label_groups = ("sad", "dpt")
    test_share: float = 0.2
    """Of the tasks, for the test split."""

    @abstractmethod
    def draw_tasks(
        self, split: str, count: int, generator: np.random.Generator
    ) -> NDArray[np.float64]:
        """(count, p): parameters of new tasks; training and test never share one."""

    @abstractmethod
    def simulators(
        self, parameters: NDArray[np.float64], generator: np.random.Generator
    ) -> Simulators:
        """n simulators of tasks with parameters (n, p), each at the start of an episode."""

    def stored_tasks(self, parameters: NDArray[np.float64]) -> NDArray[np.float64]:
        """See TaskFamily; whoever knows more of the parameters than their number says so here."""
        width = self.draw_tasks("train", 1, np.random.default_rng(0)).shape[1]
        possible = np.isfinite(parameters).all(axis=1) & (parameters.shape[1] == width)
        if not possible.all():
            raise self.no_task(parameters[possible.argmin()])
        return parameters

    def n_tasks(self, split: str, total: int) -> int:
        """See TaskFamily."""
        train = round(total * (1 - self.test_share))
        return train if split == "train" else total - train

    def are_optimal(
        self, parameters: NDArray[Any], query_states: NDArray[Any], actions: NDArray[Any]
    ) -> NDArray[np.bool_]:
        """Not known of simulators."""
        raise NotImplementedError(f"{self.name} does not know which actions are optimal")

    def dynamics_faults(
        self,
        parameters: NDArray[Any],
        group: str,
        context: dict[str, NDArray[Any]],
        cut: bool = False,
    ) -> list[str]:
        """What does not follow from a simulator: its noise is not in the dataset."""
        if not self.has_actions(context["actions"]):
            return [f"{group} holds actions that {self.name} does not have"]
        numbers = (context[name] for name in context)
        finite = all(np.isfinite(each).all() for each in numbers)
        return [] if finite else [f"{group} holds numbers that are not finite"]
