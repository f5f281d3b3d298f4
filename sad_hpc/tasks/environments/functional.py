"""The task family `functional`: Gymnasium's functional environments, in batches by JAX.

task:
  family: functional
  env: gymnasium.envs.phys2d.cartpole:CartPoleFunctional   # module and subclass of FuncEnv
  horizon: 100
  make: {x_init: 0.1}                      # fields of its parameters that all tasks share
  vary: {gravity: {uniform: [5, 20]}}      # fields that differ between tasks

The functions of a `FuncEnv` are pure, and its states are values.  Copies are therefore exact, and
one compiled call steps any number of them.
"""

import functools
import json
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sad_hpc.errors import EnvironmentFailure
from sad_hpc.experiment.numbers import NOT_IN_RANGE, in_range, reward_fault
from sad_hpc.tasks.environments.family import LOOKED_AT, EnvironmentFamily, Probe, probed
from sad_hpc.tasks.environments.functions import FunctionalConfig, Functions
from sad_hpc.tasks.simulated import Simulators


class FunctionalSimulators(Simulators):
    """n simulators of a functional environment.

    Args:
        functions: its functions.
        values: fields of the tasks' parameters, each (n,).
        generator: seeds the episodes.
        sparse: whether all rewards must be 0 or 1.
    """

    frame_shape = None

    def __init__(
        self,
        functions: Functions,
        values: dict[str, NDArray[Any]],
        generator: np.random.Generator,
        sparse: bool,
    ) -> None:
        self._functions, self._values, self._sparse = functions, values, sparse
        self.spaces, self.actions = functions.spaces, functions.actions
        n = len(next(iter(values.values())))
        self._keys = _keys(n, generator)
        self._states, seen = functions.first(self._keys, values)
        self.observations = self._numbers(seen)
        self.ended = np.zeros(n, np.bool_)

    @property
    def code(self) -> tuple[str, ...]:
        """Digests of the user's code of the environment (see `code_digests`)."""
        return self._functions.code

    def start(self, rows: NDArray[np.int64], generator: np.random.Generator) -> None:
        """Implement `Simulators.start`."""
        if not len(rows):
            return
        self._keys[rows] = _keys(len(rows), generator)
        states, seen = self._functions.first(self._keys[rows], self._of(rows))
        self._states = self._functions.map(_replaced(rows), self._states, states)
        self.observations[rows], self.ended[rows] = self._numbers(seen), False

    def step(self, actions: NDArray[Any]) -> NDArray[np.float32]:
        """Implement `Simulators.step`."""
        rewards, rows = np.zeros(len(self.ended), np.float32), np.flatnonzero(~self.ended)
        if not rows.size:
            return rewards
        self._keys[rows, 1] += 1  # a counter: the first word is the stream
        taken = self.actions.taken(actions[rows])
        before = self._functions.map(lambda part: part[rows], self._states)
        found = self._functions.next(before, taken, self._keys[rows], self._of(rows))
        self._states = self._functions.map(_replaced(rows), self._states, found[0])
        self.observations[rows] = self._numbers(found[1])
        rewards[rows], self.ended[rows] = found[2].reshape(-1), found[3].reshape(-1)
        wrong = ~in_range(rewards) | (self._sparse & ~np.isin(rewards, (0, 1)))
        for reward in rewards[wrong]:
            raise EnvironmentFailure(f"a step fails: {reward_fault(reward, self._sparse)}")
        return rewards

    def copied(
        self, rows: NDArray[np.int64], generator: np.random.Generator
    ) -> "FunctionalSimulators":
        """Implement `Simulators.copied`."""
        twin = object.__new__(type(self))
        twin._functions, twin._sparse = self._functions, self._sparse
        twin.spaces, twin.actions = self.spaces, self.actions
        twin._values, twin._keys = self._of(rows), _keys(len(rows), generator)
        twin._states = self._functions.map(lambda part: part[rows], self._states)
        twin.observations, twin.ended = self.observations[rows], self.ended[rows]
        return twin

    def _of(self, rows: NDArray[np.int64]) -> dict[str, NDArray[Any]]:
        return {name: column[rows] for name, column in self._values.items()}

    @staticmethod
    def _numbers(seen: NDArray[Any]) -> NDArray[np.float32]:
        """Return observations (m, ...) as (m, d) float32."""
        numbers = seen.reshape(len(seen), -1).astype(np.float32)
        if not in_range(numbers).all():
            raise EnvironmentFailure(f"an observation has a number {NOT_IN_RANGE}")
        return numbers


class Functional(EnvironmentFamily):
    """The tasks of a functional environment."""

    config_class = FunctionalConfig
    config: FunctionalConfig
    copies = "value"

    def __init__(self, config: FunctionalConfig) -> None:
        words = json.dumps(config.model_dump(mode="json"), sort_keys=True)
        self._functions, probe = _probe(words, Functions(config).code)
        super().__init__(config, probe)

    def simulators(
        self, parameters: NDArray[np.float64], generator: np.random.Generator
    ) -> FunctionalSimulators:
        """Implement `SimulatedFamily.simulators`."""
        values = self._functions.values(self.config.laws, parameters)
        return FunctionalSimulators(self._functions, values, generator, self.sparse_reward)


@functools.cache
def _probe(config_json: str, _code: tuple[str, ...]) -> tuple[Functions, Probe]:
    """Compile the functions, and play some training tasks; a change of `_code` repeats it."""
    config = FunctionalConfig.model_validate_json(config_json)
    functions, generator = Functions(config), np.random.default_rng(0)
    values = functions.values(config.laws, config.laws.draw("train", LOOKED_AT, generator))
    simulators = FunctionalSimulators(functions, values, generator, config.rewards == "sparse")
    return functions, probed(simulators, config, generator)


def _keys(count: int, generator: np.random.Generator) -> NDArray[np.uint32]:
    """Draw the streams of episodes, (count, 2): a random word, and a counter of steps."""
    keys = np.zeros((count, 2), np.uint32)
    keys[:, 0] = generator.integers(2**32, size=count, dtype=np.uint32)
    return keys


def _replaced(rows: NDArray[np.int64]) -> Any:
    """Return a function that replaces rows of one array by another array."""

    def replaced(one: NDArray[Any], other: NDArray[Any]) -> NDArray[Any]:
        changed = np.array(one)
        changed[rows] = other
        return changed

    return replaced
