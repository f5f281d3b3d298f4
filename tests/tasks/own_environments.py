"""User environments with and without faults; importing this module registers them."""

import itertools
import random
import warnings
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from sad_hpc.tasks.base import make_family
from sad_hpc.tasks.environments.family import GymnasiumConfig

CLOCK = itertools.count()
"""Global counter outside of any environment's state."""


class Walk(gymnasium.Env):
    """A random walk on a line, which ends at +-100, by random numbers of two generators."""

    observation_space = spaces.Box(-200, 200, (1,), np.float32)
    action_space = spaces.Discrete(3, start=-1)
    fails_at = -1
    noise = 1.0
    luck = 0

    def reset(self, *, seed: int | None = None, options: Any = None):
        super().reset(seed=seed)
        self.position, self.steps = 0.0, 0
        self.gusts = random.Random(seed)
        return self.seen(), {}

    def step(self, action):
        assert action in self.action_space
        self.steps += 1
        if self.steps == self.fails_at:
            raise ZeroDivisionError("the ground\nis gone")
        wind = self.np_random.normal() + self.gusts.gauss(0, 1)
        self.position += float(action) + self.noise * wind
        return self.seen(), -abs(self.position), abs(self.position) >= 100, False, {}

    def seen(self):
        return np.array([self.position], np.float32)


class Engine:
    """Cannot be copied, as much as a simulator behind a socket."""

    position = 0.0

    def __reduce_ex__(self, protocol):
        raise TypeError("an engine cannot be copied")


class Remote(Walk):
    """Its state is elsewhere, and can be had and put back."""

    def __init__(self, **kwargs: Any) -> None:
        self.engine = Engine()

    @property
    def position(self):
        return self.engine.position

    @position.setter
    def position(self, value):
        self.engine.position = value

    def step(self, action):
        self.position += float(action) + self.np_random.normal()
        return self.seen(), self.position, False, False, {}

    def get_state(self):
        return self.position

    def set_state(self, state):
        self.position = state


class Paid(gymnasium.Wrapper):
    """Pays the number of the step, which the wrapper alone knows."""

    def reset(self, **kwargs: Any):
        self.steps = 0
        return self.env.reset(**kwargs)

    def step(self, action):
        self.steps += 1
        observation, _, *rest = self.env.step(action)
        return observation, self.steps, *rest


class Boxed(Walk):
    """Its engine cannot be copied, but repeats an episode; the engine pushes at random, too."""

    def __init__(self, **kwargs: Any) -> None:
        self.engine = Engine()

    def step(self, action):
        self.engine.position = (self.engine.position + float(action)) % 7
        observation, reward, *rest = super().step(action)
        return observation, reward + self.engine.position, *rest

    def reset(self, **kwargs: Any):
        self.engine.position = 0.0
        return super().reset(**kwargs)


class Counting(Walk):
    """A global counter goes on under every environment of the process."""

    def step(self, action):
        observation, _, *rest = super().step(action)
        return observation, float(next(CLOCK)), *rest


class Drifting(Walk):
    """Set back by each reset, but global: nothing but a single environment at a time is right."""

    drift = [0.0]

    def reset(self, **kwargs: Any):
        self.drift[0] = 0.0
        return super().reset(**kwargs)

    def step(self, action):
        self.drift[0] += 1
        observation, _, *rest = super().step(action)
        return observation, self.drift[0], *rest


class Forgetful(Drifting):
    """Its pair does nothing, and its engine cannot be copied."""

    def __init__(self, **kwargs: Any) -> None:
        self.engine = Engine()

    def get_state(self):
        return None

    def set_state(self, state):
        pass


class Unseeded(Walk):
    """Ignores its seed."""

    def reset(self, *, seed: int | None = None, options: Any = None):
        return super().reset(seed=None)


class NotANumber(Walk):
    """Sees NaN in its third step, or is paid it."""

    where = "reward"

    def step(self, action):
        observation, reward, *rest = super().step(action)
        if self.steps == 3:
            observation = observation if self.where == "reward" else observation * np.nan
            reward = float("nan") if self.where == "reward" else reward
        return observation, reward, *rest


class Wide(Walk):
    """Its width is an argument of the environment."""

    def __init__(self, width: int = 1) -> None:
        self.observation_space = spaces.Box(-200, 200, (width,), np.float32)

    def seen(self):
        return np.full(self.observation_space.shape, self.position, np.float32)


class Sized(Walk):
    """Sees and is paid numbers of any size, in float64."""

    def __init__(self, size: float = 1.0, pay: float = 1.0) -> None:
        self.size, self.pay = size, pay

    def step(self, action):
        observation, reward, *rest = super().step(action)
        return observation, self.pay * reward, *rest

    def seen(self):
        return np.array([self.size * self.position])


class Table(gymnasium.Env):
    """Two states, each of which leads to the other, for a pay."""

    observation_space = spaces.Discrete(2)
    action_space = spaces.Discrete(2)

    def __init__(self, pay: float = 1.0) -> None:
        self.P = {s: {a: [(1.0, 1 - s, pay * a, False)] for a in (0, 1)} for s in (0, 1)}
        self.initial_state_distrib = np.array([1.0, 0.0])


class Stuck(Walk):
    """Its third step has no end."""

    def step(self, action):
        while self.steps == 2:
            pass
        return super().step(action)


class Chatty(Walk):
    """Says what it does, and is paid the same for everything."""

    def step(self, action):
        print("a step!")
        observation, _, *rest = super().step(action)
        return observation, -1.0, *rest


def sized(**changes: Any) -> Any:
    """The family of Sized, with another `task` section."""
    task = {"env": f"{__name__}:Sized-v0", "horizon": 10}
    task["attributes"] = {"luck": {"integers": [0, 9]}}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of numbers that float32 does not hold
        return make_family(GymnasiumConfig(**(task | changes)))


class Keypad(gymnasium.Env):
    """Doors in a ring: the button of the code pays 1 and opens the next one, others pay nothing."""

    def __init__(self, buttons: int = 300, doors: int = 2, code: int = 0) -> None:
        self.observation_space = spaces.Box(0, doors, (1,), np.float32)
        self.action_space = spaces.Discrete(buttons)
        self.initial_state_distrib = np.eye(doors)[0]
        self.buttons, self.doors, self.code = buttons, doors, code

    @property
    def P(self):
        buttons = range(self.buttons)
        return {door: {b: [self.outcome(door, b)] for b in buttons} for door in range(self.doors)}

    def outcome(self, door, button):
        opens = button == self.code
        return 1.0, (door + opens) % self.doors, float(opens), False

    def reset(self, *, seed: int | None = None, options: Any = None):
        super().reset(seed=seed)
        self.door = 0
        return np.array([self.door], np.float32), {}

    def step(self, action):
        _, self.door, reward, ended = self.outcome(self.door, int(action))
        return np.array([self.door], np.float32), reward, ended, False, {}


class Lock(gymnasium.Env):
    """Pays 1 for the right pair of a digit and a letter."""

    observation_space = spaces.Box(0, 1, (1,), np.float32)
    action_space = spaces.Dict(
        digit=spaces.Discrete(3, start=1), letters=spaces.MultiDiscrete([2, 3])
    )

    def __init__(self, digit: int = 1, letter: int = 0) -> None:
        self.digit, self.letter = digit, letter

    def reset(self, *, seed: int | None = None, options: Any = None):
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action):
        assert action in self.action_space
        right = action["digit"] == self.digit and action["letters"][1] == self.letter
        return np.ones(1, np.float32), float(right), False, False, {}


class Pictures(Walk):
    """Its image shows the position as a bright column, on noise."""

    observation_space = spaces.Box(0, 255, (16, 22, 3), np.uint8)

    def seen(self):
        image = self.np_random.integers(100, size=(16, 22, 3), dtype=np.uint8)
        image[:, int(np.clip(11 + self.position, 0, 21))] += 150
        return image


gymnasium.register("Paid-v0", lambda: Paid(Remote()))
for kind in (
    Walk,
    Remote,
    Boxed,
    Forgetful,
    Counting,
    Drifting,
    Unseeded,
    NotANumber,
    Wide,
    Sized,
    Table,
    Stuck,
    Chatty,
    Keypad,
    Lock,
    Pictures,
):
    gymnasium.register(f"{kind.__name__}-v0", kind, max_episode_steps=5)
