"""Sticky actions of Atari games, with a state that can be copied."""

import sys
from typing import Any

import numpy as np

SETTING = "repeat_action_probability"


class StickyActions:
    """A console of ALE, whose sticky actions happen here instead of in it.

    The console repeats the previous action in each frame by a probability (Machado et al., 2018).
    But the states that it saves lack that action, and nothing seeds its random numbers in the
    middle of a game.  The law is the same here, with a generator that is copied and seeded as any
    other of an environment.
    """

    def __init__(self, console: Any) -> None:
        self.console = console
        self._probability = console.getFloat(SETTING)
        console.setFloat(SETTING, 0.0)
        self._generator = np.random.default_rng()
        self._previous: Any = None

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # what Python asks of an object that it copies
            raise AttributeError(name)
        return getattr(self.console, name)

    def setInt(self, name: str, value: Any) -> None:
        """As the console's: Gymnasium's environment seeds it by this."""
        self.console.setInt(name, value)
        if name == "random_seed":
            self._generator = np.random.default_rng(int(value) % 2**32)

    def reset_game(self) -> None:
        """As the console's."""
        self.console.reset_game()
        self._previous = None

    def act(self, action: Any, strength: float) -> int:
        """A frame: the action, or the previous one.

        Returns:
            the reward.
        """
        if self._previous is None or self._generator.random() >= self._probability:
            self._previous = action, strength
        reward: int = self.console.act(*self._previous)
        return reward


def take_over_sticky_actions(environment: Any) -> None:
    """Puts StickyActions into an environment of ALE that has any; before its first episode.

    The console forgets its own when it loads the game, which a seeded reset does.
    """
    plain = environment.unwrapped
    ale_py: Any = sys.modules.get("ale_py")  # imported by whoever has an environment of it
    if ale_py is None or not isinstance(getattr(plain, "ale", None), ale_py.ALEInterface):
        return
    if plain.ale.getFloat(SETTING) > 0:
        plain.ale = StickyActions(plain.ale)
