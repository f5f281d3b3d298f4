"""Atari games of the Arcade Learning Environment."""

import sys
from typing import Any

from sad_hpc.tasks.environments.engine import EngineSimulator
from sad_hpc.tasks.environments.sticky_actions import StickyActions
from sad_hpc.tasks.environments.task import Environment


class AleState(EngineSimulator):
    """An Atari game whose copies share the console and save `clone_state`.

    The random numbers of a game in progress are those of `StickyActions` and of a random frame
    skip.  Both are drawn in Python.
    """

    adapter = "ALE's clone_state and restore_state"

    @classmethod
    def fits(cls, environment: Environment) -> bool:
        """Implement `Simulator.fits`."""
        ale_py: Any = sys.modules.get("ale_py")
        return ale_py is not None and isinstance(_console(environment), ale_py.ALEInterface)

    def _parts(self) -> list[object]:
        return [_console(self.environment), self.environment.unwrapped._action_set]

    def _save(self) -> Any:
        return self.environment.unwrapped.clone_state(include_rng=True)

    def _restore(self, state: Any) -> None:
        self.environment.unwrapped.restore_state(state)


def _console(environment: Environment) -> Any:
    ale = getattr(environment.unwrapped, "ale", None)
    return ale.console if isinstance(ale, StickyActions) else ale
