"""Environments that share an engine (a physics model, a console), whose state is saved."""

import copy
from abc import abstractmethod
from typing import Any, Self

from sad_hpc.tasks.environments.random_numbers import reseed
from sad_hpc.tasks.environments.simulator import Simulator, Step, constants, layers
from sad_hpc.tasks.environments.task import Environment


class Engine:
    """What copies of one environment have in common."""

    def __init__(self) -> None:
        self.holds: EngineSimulator | None = None
        """The one whose state is in the engine now."""


class EngineSimulator(Simulator):
    """A light twin of an environment: Python objects of its own, and a saved state of the engine.

    So a thousand copies cost a thousand states and not a thousand models.  The state is put into
    the engine before a step, and saved when another one needs the engine.
    """

    def __init__(self, environment: Environment) -> None:
        super().__init__(environment)
        self._engine = Engine()
        self._state: Any = None
        """Never changed once it is saved, as copies share it; None before the first episode."""

    @abstractmethod
    def _parts(self) -> list[object]:
        """The objects that are the engine."""

    @abstractmethod
    def _save(self) -> Any:
        """The state of the engine."""

    @abstractmethod
    def _restore(self, state: Any) -> None:
        """Puts a state into the engine, and leaves the saved one as it is."""

    def _reseeded(self, state: Any, seed: int) -> Any:
        """The state with other random numbers, where the engine draws any."""
        return state

    def reset(self, seed: int) -> Any:
        """See Simulator."""
        self._make_room()
        observation = super().reset(seed)
        self._engine.holds = self
        return observation

    def step(self, action: Any) -> Step:
        """See Simulator."""
        if self._engine.holds is not self:
            self._make_room()
            self._restore(self._state)
            self._engine.holds = self
        return super().step(action)

    def _make_room(self) -> None:
        """Saves what the engine holds."""
        if self._engine.holds is not None:
            self._engine.holds._state = self._engine.holds._save()
            self._engine.holds = None

    def copied(self, seed: int | None = None) -> Self:
        """See Simulator."""
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
    """A deepcopy by attributes, less what is in `memo`.

    A class's own way to be copied is not asked, as EzPickle's makes a new environment instead.
    """
    found = [layer for layer in layers(environment) if id(layer) not in memo]
    for layer in found:
        memo[id(layer)] = object.__new__(type(layer))
    for layer in found:
        vars(memo[id(layer)]).update(copy.deepcopy(vars(layer), memo))
    twin: Environment = memo[id(environment)]
    return twin
