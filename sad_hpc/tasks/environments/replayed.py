"""Copies by replay: a new environment repeats the episode, from its seed and its actions."""

import copy
from typing import Any, Self

from sad_hpc.tasks.environments.simulator import (
    Environment,
    MakeEnvironment,
    Simulator,
    Step,
    layers,
    reseed,
)


class Replayed(Simulator):
    """A simulator whose copies repeat everything that happened to it since its reset.

    It is for environments with states outside of Python that reset(seed) determines, such as those
    of Box2D.  A copy at step t takes t steps, so the time of a rollout's labels grows with the
    square of its length.  Only generators in attributes of the environment and its wrappers are
    reseeded in a copy.
    """

    adapter = "repeating the episode"

    def __init__(self, environment: Environment, make: MakeEnvironment) -> None:
        super().__init__(environment, make)
        self._history: list[tuple[str, Any]] = []
        """Names and arguments of the calls that lead to the present state."""

    @classmethod
    def fits(cls, environment: Environment) -> bool:
        """Return True; a trial shows whether copies are right."""
        return True

    def reset(self, seed: int) -> Any:
        """Implement `Simulator.reset`."""
        self._history = [("reset", seed)]
        return super().reset(seed)

    def step(self, action: Any) -> Step:
        """Implement `Simulator.step`."""
        self._history.append(("step", copy.copy(action)))  # the environment may change its own
        return super().step(action)

    def copied(self, seed: int | None = None) -> Self:
        """Implement `Simulator.copied`."""
        twin = type(self)(self.make(), self.make)
        for name, argument in self._history:
            getattr(twin, name)(argument)
        if seed is not None:
            twin.continue_with(seed)
        return twin

    def continue_with(self, seed: int) -> None:
        """Continue with random numbers of another seed."""
        self._history.append(("continue_with", seed))
        parts = [part for layer in layers(self.environment) for part in vars(layer).values()]
        reseed(self.environment, parts, seed)
