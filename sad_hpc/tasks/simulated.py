"""Families whose tasks are simulators that can be copied in the middle of an episode.

Several label rollouts (Algorithms 3 and 5) begin in the same query state.  A simulator without
numbered states must therefore be copied in that state.  SAD has no other requirement.
"""

from abc import ABC, abstractmethod
from typing import Any, TypeAlias

import numpy as np
from gymnasium import Space
from numpy.typing import NDArray

from sad_hpc.tasks.base import PLAY, Arrays, TaskFamily

Spaces: TypeAlias = tuple[Space[Any], Space[Any]]
"""A space of observations and one of actions."""


class Simulators(ABC):
    """n simulators, each in its own episode.

    There is no time limit; the caller counts steps.  An ended episode keeps its state and has
    rewards of 0 until `start` is called.
    """

    observations: NDArray[Any]
    """(n, d) float32, or images (n, H, W, C) uint8: observations of the current states."""
    ended: NDArray[np.bool_]
    """(n,): whether a terminal state was reached."""

    @abstractmethod
    def start(self, rows: NDArray[np.int64], generator: np.random.Generator) -> None:
        """Start new episodes in simulators `rows` (m,), with seeds drawn from the generator."""

    @abstractmethod
    def step(self, actions: NDArray[Any]) -> NDArray[np.float32]:
        """Take an action (n,) in each simulator.

        Returns:
            rewards (n,).
        """

    @abstractmethod
    def copied(self, rows: NDArray[np.int64], generator: np.random.Generator) -> "Simulators":
        """Return copies of the simulators `rows` (m,), which may have repetitions.

        A copy does not change its origin.  If steps are random, each copy has its own random
        numbers, seeded from the generator.
        """


class SimulatedFamily(TaskFamily):
    """A distribution over simulators.

    The model sees observations as states.  Contexts are successive episodes of the behavior policy,
    because other states cannot be drawn.  The optimal actions are unknown, so there are no oracle
    labels.
    """

    certain = False
    has_ends = True
    takes_contexts = takes_logs = shares_actions = True
    reward_dtype = np.float32
    context_groups = ("transitions",)
    label_groups: tuple[str, ...] = ("sad", PLAY)
    spaces: Spaces | None = None
    """Spaces of the environment, which logged episodes must have; None: unknown."""

    @property
    def state_dtype(self) -> np.dtype[Any]:
        """Dtype of observations."""
        return np.dtype(np.float32 if self.frame_shape is None else np.uint8)

    @abstractmethod
    def draw_tasks(
        self, split: str, count: int, generator: np.random.Generator
    ) -> NDArray[np.float64]:
        """Draw parameters of new tasks, (count, p); training and test never share a task."""

    @abstractmethod
    def simulators(
        self, parameters: NDArray[np.float64], generator: np.random.Generator
    ) -> Simulators:
        """Return simulators of tasks with parameters (n, p), each at the start of an episode."""

    def reference_returns(
        self,
        parameters: NDArray[np.float64],
        shown: Arrays | None,
        episodes: int,
        generator: np.random.Generator,
    ) -> dict[str, NDArray[np.float32]]:
        """Return the returns (n, episodes) of reference policies by name, for tables and figures.

        The default has none.

        Args:
            parameters: (n, p) of the tasks.
            shown: states, actions and rewards (n, T, ...) of the contexts that the policies learn
                from before the first episode; None: no contexts, as online.
            episodes: number of successive episodes.
            generator: random numbers of the policies and their simulators.
        """
        return {}

    def stored_tasks(self, parameters: NDArray[np.float64]) -> NDArray[np.float64]:
        """Implement `TaskFamily.stored_tasks` with a check of number and finiteness only."""
        width = self.draw_tasks("train", 1, np.random.default_rng(0)).shape[1]
        possible = np.isfinite(parameters).all(axis=1) & (parameters.shape[1] == width)
        if not possible.all():
            raise self.no_task(parameters[possible.argmin()])
        return parameters

    def are_optimal(
        self, parameters: NDArray[Any], query_states: NDArray[Any], actions: NDArray[Any]
    ) -> NDArray[np.bool_]:
        """Raise NotImplementedError: the optimal actions of simulators are unknown."""
        raise NotImplementedError(f"the optimal actions of {self.name} are unknown")

    def dynamics_faults(
        self, parameters: NDArray[Any], group: str, context: Arrays, cut: bool = False
    ) -> list[str]:
        """Check actions and finiteness only: the dataset does not have the simulator's noise."""
        if not self.has_actions(context["actions"]):
            return [f"{group} holds actions that {self.name} does not have"]
        numbers = (context[name] for name in context)
        finite = all(np.isfinite(each).all() for each in numbers)
        return [] if finite else [f"{group} holds numbers that are not finite"]
