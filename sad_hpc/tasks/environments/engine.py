"""Simulators that share an engine, such as a physics model or a console, and save its state."""

import copy
from abc import abstractmethod
from typing import Any, Self

import numpy as np

from sad_hpc.tasks.environments.simulator import (
    Environment,
    MakeEnvironment,
    Simulator,
    Step,
    constants,
    layers,
    reseed,
)


class Engine:
    """The engine that copies of an environment share."""

    def __init__(self) -> None:
        self.holds: EngineSimulator | None = None
        """The simulator whose state is in the engine."""


class EngineSimulator(Simulator):
    """An environment whose copies have their own Python objects and a saved state of the engine.

    A copy takes the memory of a state instead of a model.  The state is restored before a step, and
    saved when another simulator needs the engine.
    """

    def __init__(self, environment: Environment, make: MakeEnvironment) -> None:
        super().__init__(environment, make)
        self._engine = Engine()
        self._state: Any = None
        """Saved state, never modified because copies share it; None before the first episode."""

    @abstractmethod
    def _parts(self) -> list[object]:
        """Return the objects that form the engine."""

    @abstractmethod
    def _save(self) -> Any:
        """Return the state of the engine."""

    @abstractmethod
    def _restore(self, state: Any) -> None:
        """Restore a state of the engine without modifying `state`."""

    def _reseeded(self, state: Any, seed: int) -> Any:
        """Return the state with reseeded random numbers, if the engine draws random numbers."""
        return state

    def reset(self, seed: int) -> Any:
        """Implement `Simulator.reset`."""
        self._make_room()
        observation = super().reset(seed)
        self._engine.holds = self
        return observation

    def step(self, action: Any) -> Step:
        """Implement `Simulator.step`."""
        if self._engine.holds is not self:
            self._make_room()
            self._restore(self._state)
            self._engine.holds = self
        return super().step(action)

    def _make_room(self) -> None:
        """Save the state that is in the engine."""
        if self._engine.holds is not None:
            self._engine.holds._state = self._engine.holds._save()
            self._engine.holds = None

    def copied(self, seed: int | None = None) -> Self:
        """Implement `Simulator.copied`."""
        if self._engine.holds is self:
            self._state = self._save()
        shared = [*constants(self.environment), *self._parts()]
        memo: dict[int, Any] = {id(part): part for part in shared}
        twin = copy.copy(self)
        twin.environment = _twin(self.environment, memo)
        if seed is not None:
            reseed(twin.environment, memo.values(), seed)
            if twin._state is not None:
                twin._state = twin._reseeded(twin._state, seed)
        return twin


def _twin(environment: Environment, memo: dict[int, Any]) -> Environment:
    """Return a deepcopy by attributes that shares the objects in `memo`.

    A class's own copy method is not called, because that of EzPickle makes a new environment.
    """
    found = [layer for layer in layers(environment) if id(layer) not in memo]
    for layer in found:
        memo[id(layer)] = object.__new__(type(layer))
    for layer in found:
        vars(memo[id(layer)]).update(copy.deepcopy(vars(layer), memo))
    twin: Environment = memo[id(environment)]
    return twin


class StatePair(EngineSimulator):
    """A simulator whose copies share the environment and save `get_state()` and `np_random`.

    `get_state` returns the whole state, which later steps must not modify.  `set_state(state)`
    restores it any number of times.  Only random numbers from `np_random` are reseeded in a copy.
    """

    adapter = "get_state and set_state"

    @classmethod
    def fits(cls, environment: Environment) -> bool:
        """Implement `Simulator.fits`."""
        plain = environment.unwrapped
        return hasattr(plain, "get_state") and hasattr(plain, "set_state")

    def _parts(self) -> list[object]:
        return [self.environment.unwrapped]

    def _save(self) -> tuple[Any, dict[str, Any]]:
        plain: Any = self.environment.unwrapped
        return plain.get_state(), plain.np_random.bit_generator.state

    def _restore(self, state: tuple[Any, dict[str, Any]]) -> None:
        plain: Any = self.environment.unwrapped
        plain.set_state(state[0])
        plain.np_random.bit_generator.state = state[1]

    def _reseeded(self, state: tuple[Any, dict[str, Any]], seed: int) -> tuple[Any, dict[str, Any]]:
        plain: Any = self.environment.unwrapped
        kind = type(plain.np_random.bit_generator)
        return state[0], kind(np.random.SeedSequence([seed, 0])).state
