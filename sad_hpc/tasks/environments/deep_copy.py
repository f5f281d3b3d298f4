"""Copies by Python's deepcopy, as of classic control, toy text and MiniGrid."""

import copy
from typing import Any, Self

from sad_hpc.tasks.environments.random_numbers import reseed
from sad_hpc.tasks.environments.simulator import Simulator, constants
from sad_hpc.tasks.environments.task import Environment


class DeepCopied(Simulator):
    """A simulator whose copies each have their own environment.

    The deepcopy of an environment with a state outside Python (MuJoCo, ALE) or of an EzPickle can
    have another state without an error.  `replay` detects this.
    """

    adapter = "deepcopy"

    @classmethod
    def fits(cls, environment: Environment) -> bool:
        """Return True; a trial shows whether copies are right."""
        return True

    def copied(self, seed: int | None = None) -> Self:
        """Implement `Simulator.copied`."""
        memo: dict[int, Any] = {id(part): part for part in constants(self.environment)}
        twin = type(self)(copy.deepcopy(self.environment, memo))
        if seed is not None:
            reseed(twin.environment, memo.values(), seed)
        return twin
