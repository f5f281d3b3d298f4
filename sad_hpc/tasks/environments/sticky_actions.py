"""Sticky actions of Atari games, with a state that can be copied."""

import sys
from typing import Any

import numpy as np

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
    ale_py: Any = sys.modules.get("ale_py")  # any ALE environment has imported it
    if ale_py is None or not isinstance(getattr(plain, "ale", None), ale_py.ALEInterface):
        return
    if plain.ale.getFloat(SETTING) > 0:
        plain.ale = StickyActions(plain.ale)
