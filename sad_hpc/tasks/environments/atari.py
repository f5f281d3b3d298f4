"""Atari games of the Arcade Learning Environment, with sticky actions that can be copied."""

import sys
from typing import Any

import numpy as np

from sad_hpc.tasks.environments.engine import EngineSimulator
from sad_hpc.tasks.environments.simulator import Environment

SETTING = "repeat_action_probability"


class StickyActions:
    """A wrapper of an ALE console that draws sticky actions in Python.

    The console repeats the previous action in each frame with a probability (Machado et al., 2018).
    Its saved states lack that action, and its random numbers cannot be seeded in the middle of a
    game.  This class has the same distribution and a generator that is copied and seeded like any
    other of an environment.
    """

    def __init__(self, console: Any) -> None:
        self.console = console
        self._probability = console.getFloat(SETTING)
        console.setFloat(SETTING, 0.0)
        self._generator = np.random.default_rng()
        self._previous: Any = None

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # copy and pickle look these up before __init__
            raise AttributeError(name)
        return getattr(self.console, name)

    def setInt(self, name: str, value: Any) -> None:
        """Set an option of the console; `random_seed` also seeds the sticky actions."""
        self.console.setInt(name, value)
        if name == "random_seed":
            self._generator = np.random.default_rng(int(value) % 2**32)

    def reset_game(self) -> None:
        """Start a game, without a previous action."""
        self.console.reset_game()
        self._previous = None

    def act(self, action: Any, strength: float) -> int:
        """Play a frame with the action or, at random, the previous one.

        Returns:
            the reward.
        """
        if self._previous is None or self._generator.random() >= self._probability:
            self._previous = action, strength
        reward: int = self.console.act(*self._previous)
        return reward


def take_over_sticky_actions(environment: Any) -> None:
    """Replace the sticky actions of an ALE environment by StickyActions, before its first episode.

    The console drops its own setting when a seeded reset loads the game.
    """
    plain = environment.unwrapped
    if AleState.fits(environment) and plain.ale.getFloat(SETTING) > 0:
        plain.ale = StickyActions(plain.ale)


class AleState(EngineSimulator):
    """An Atari game whose copies share the console and save `clone_state`.

    The random numbers of a game in progress are those of `StickyActions` and of a random frame
    skip.  Both are drawn in Python.
    """

    adapter = "ALE's clone_state and restore_state"

    @classmethod
    def fits(cls, environment: Environment) -> bool:
        """Implement `Simulator.fits`."""
        ale_py: Any = sys.modules.get("ale_py")  # any ALE environment has imported it
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
