"""An environment that can be copied in the middle of an episode; the usual copy is a deepcopy."""

import copy
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, ClassVar, Self, TypeAlias

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec

from sad_hpc.experiment.numbers import is_in_range, reward_fault
from sad_hpc.user_code import code_digests

Environment: TypeAlias = gymnasium.Env[Any, Any]
MakeEnvironment: TypeAlias = Callable[[], Environment]

PLAIN_SPACES = (spaces.Box, spaces.Discrete, spaces.MultiBinary, spaces.MultiDiscrete)

Step = tuple[Any, float, bool]
"""An observation, a reward, and whether the episode has ended."""


class Simulator(ABC):
    """An environment and a method to copy it.

    Args:
        environment: the environment.
        make: function that makes another one of the same task.
    """

    adapter: ClassVar[str]
    """Name of the method in messages."""

    def __init__(self, environment: Environment, make: MakeEnvironment) -> None:
        self.environment, self.make = environment, make

    @classmethod
    @abstractmethod
    def fits(cls, environment: Environment) -> bool:
        """Return whether the method may apply to an environment."""

    def reset(self, seed: int) -> Any:
        """Start an episode.

        Returns:
            the first observation.
        """
        observation, _ = self.environment.reset(seed=seed)
        return observation

    def step(self, action: Any) -> Step:
        """Take an action of the environment's own action space.

        An episode that the environment itself truncates counts as ended: later steps are undefined.
        Gymnasium's time limit is not used.

        Raises:
            ValueError: the reward is not finite, or its magnitude exceeds LARGEST_NUMBER.
        """
        observation, reward, terminated, truncated, _ = self.environment.step(action)
        reward = float(reward)
        if not is_in_range(reward):
            raise ValueError(reward_fault(reward, sparse=False))
        return observation, reward, bool(terminated or truncated)

    @abstractmethod
    def copied(self, seed: int | None = None) -> Self:
        """Return an independent copy in the same state.

        Args:
            seed: seed of the copy's random numbers; None: the same numbers as this one.
        """


def layers(environment: Environment) -> list[Environment]:
    """Return the wrappers of an environment, from the outermost to the environment itself."""
    found = [environment]
    while found[-1] is not environment.unwrapped:
        found.append(found[-1].env)
    return found


def environment_code(environment: Environment) -> tuple[str, ...]:
    """Return digests of the modules of an environment and its wrappers (see `code_digests`)."""
    return code_digests(type(layer) for layer in layers(environment))


def constants(environment: Environment) -> list[object]:
    """Return the constant objects that copies of an environment share.

    They are its registration and the spaces that were never sampled.  Sharing them halves the time
    of a deepcopy of a small environment.
    """
    parts = [part for layer in layers(environment) for part in vars(layer).values()]
    return [
        part
        for part in parts
        if isinstance(part, EnvSpec) or (type(part) in PLAIN_SPACES and part._np_random is None)
    ]


class DeepCopied(Simulator):
    """A simulator whose copies each have their own environment.

    The deepcopy of an environment with a state outside Python (MuJoCo, ALE) or of an EzPickle can
    have another state without an error.  `trials` detects this.
    """

    adapter = "deepcopy"

    @classmethod
    def fits(cls, environment: Environment) -> bool:
        """Return True; a trial shows whether copies are right."""
        return True

    def copied(self, seed: int | None = None) -> Self:
        """Implement `Simulator.copied`."""
        memo: dict[int, Any] = {id(part): part for part in constants(self.environment)}
        twin = type(self)(copy.deepcopy(self.environment, memo), self.make)
        if seed is not None:
            reseed(twin.environment, memo.values(), seed)
        return twin


def reseed(environment: Environment, parts: Iterable[object], seed: int) -> None:
    """Give a copied environment its own random numbers.

    Without this, a copy and its origin would draw the same random numbers.

    Args:
        environment: the copy.
        parts: all objects of the copy.  Generators among them are reseeded in place, so that
            references to them stay valid.
        seed: seed of all generators; each has its own stream.
    """
    for number, part in enumerate(parts):
        if isinstance(part, np.random.Generator):
            own = np.random.SeedSequence([seed, number])
            part.bit_generator.state = type(part.bit_generator)(own).state
        elif isinstance(part, np.random.RandomState):
            part.seed(np.random.SeedSequence([seed, number]).generate_state(4))
        elif isinstance(part, random.Random):
            part.seed(f"{seed} {number}")
    plain: Any = environment.unwrapped
    if plain._np_random is None:  # otherwise Gymnasium makes one without a fixed seed later
        plain.np_random = np.random.default_rng(seed)
