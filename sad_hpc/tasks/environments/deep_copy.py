"""Environments that Python's deepcopy copies: classic control, toy text, MiniGrid."""

import copy
from typing import Any, Self

from sad_hpc.tasks.environments.random_numbers import reseed
from sad_hpc.tasks.environments.simulator import Simulator, constants
from sad_hpc.tasks.environments.task import Environment


class DeepCopied(Simulator):
    """Each has an environment of its own.

    An environment that is more than its Python objects may be copied without a word into another
    state (MuJoCo, ALE, whatever is an EzPickle): `replay` finds that out.
    """

    adapter = "deepcopy"

    @classmethod
    def fits(cls, environment: Environment) -> bool:
        """Always: whether it works is seen when it is tried."""
        return True

    def copied(self, seed: int | None = None) -> Self:
        """See Simulator."""
        memo: dict[int, Any] = {id(part): part for part in constants(self.environment)}
        twin = type(self)(copy.deepcopy(self.environment, memo))
        if seed is not None:
            reseed(twin.environment, memo.values(), seed)
        return twin
