"""One environment in the middle of an episode, which can be copied there."""

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Self

from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec

from sad_hpc.tasks.environments.task import Environment
from sad_hpc.tasks.number_range import is_in_range, reward_fault
from sad_hpc.tasks.source_code import code_digests

PLAIN_SPACES = (spaces.Box, spaces.Discrete, spaces.MultiBinary, spaces.MultiDiscrete)

Step = tuple[Any, float, bool]
"""An observation, a reward, and whether the episode has ended."""


class Simulator(ABC):
    """An environment and a way to copy it."""

    adapter: ClassVar[str]
    """The way, as messages name it."""

    def __init__(self, environment: Environment) -> None:
        self.environment = environment

    @classmethod
    @abstractmethod
    def fits(cls, environment: Environment) -> bool:
        """Whether the environment has what this way needs."""

    def reset(self, seed: int) -> Any:
        """Starts an episode.

        Returns:
            an observation.
        """
        observation, _ = self.environment.reset(seed=seed)
        return observation

    def step(self, action: Any) -> Step:
        """Takes an action of the environment's own space.

        An episode that an environment truncates by itself, and not gymnasium's time limit, has
        ended: the counter is then part of its state, and what comes later is not defined.

        Raises:
            ValueError: the reward is not finite, or beyond LARGEST_NUMBER.
        """
        observation, reward, terminated, truncated, _ = self.environment.step(action)
        reward = float(reward)
        if not is_in_range(reward):
            raise ValueError(reward_fault(reward, sparse=False))
        return observation, reward, bool(terminated or truncated)

    @abstractmethod
    def copied(self, seed: int | None = None) -> Self:
        """One in the same state, which changes nothing in this one.

        Args:
            seed: of its random numbers from now on; None: those of this one.
        """


def layers(environment: Environment) -> list[Environment]:
    """The wrappers of an environment, from the outermost to the environment itself."""
    found = [environment]
    while found[-1] is not environment.unwrapped:
        found.append(found[-1].env)
    return found


def environment_code(environment: Environment) -> tuple[str, ...]:
    """Digests of the modules that define an environment and its wrappers (see `code_digests`)."""
    return code_digests(type(layer) for layer in layers(environment))


def constants(environment: Environment) -> list[object]:
    """What copies of an environment share, since nobody changes it.

    These are how it was registered, and spaces that were never drawn from: half of the time that a
    deepcopy of a small environment takes.
    """
    parts = [part for layer in layers(environment) for part in vars(layer).values()]
    return [
        part
        for part in parts
        if isinstance(part, EnvSpec) or (type(part) in PLAIN_SPACES and part._np_random is None)
    ]
