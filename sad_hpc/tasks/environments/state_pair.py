"""Copies of environments that have `get_state` and `set_state`."""

from typing import Any

import numpy as np

from sad_hpc.tasks.environments.engine import EngineSimulator
from sad_hpc.tasks.environments.task import Environment


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
