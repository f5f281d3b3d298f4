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

import dataclasses
import functools
import json
import os
from types import ModuleType
from typing import Any, Literal

import numpy as np
from gymnasium import spaces
from gymnasium.experimental.functional import FuncEnv
from numpy.typing import NDArray

from sad_hpc.errors import ConfigError, EnvironmentFailure, described
from sad_hpc.experiment.numbers import NOT_IN_RANGE, in_range, reward_fault
from sad_hpc.tasks.environments.actions import actions_of
from sad_hpc.tasks.environments.family import (
    LOOKED_AT,
    EnvironmentFamily,
    Probe,
    SimulatorConfig,
    probed,
)
from sad_hpc.tasks.environments.laws import Laws
from sad_hpc.tasks.environments.observations import Observations
from sad_hpc.tasks.simulated import Simulators
from sad_hpc.user_code import FAILURES, UserCode, code_digests, import_user_module


class FunctionalConfig(SimulatorConfig):
    """The `task` section of a functional environment."""

    family: Literal["functional"] = "functional"


class Functions:
    """The functions of a `FuncEnv` for n simulators, compiled.

    JAX compiles for each number of simulators, so numbers are rounded up to powers of two.

    Args:
        config: names the class, and the fields of its parameters.

    Raises:
        ConfigError: JAX or the class is missing, a field is unknown or is not a number, or a space
            is not supported.
    """

    def __init__(self, config: FunctionalConfig) -> None:
        if config.attributes:
            raise ConfigError("task.attributes is for task.family=gymnasium: use task.vary")
        self._jax, self._name = _jax(), config.env
        self.environment = _made(config.env)
        self._parameters = _with_fields(self.environment, config)
        seen, acts = self.environment.observation_space, self.environment.action_space
        if not isinstance(seen, spaces.Box) or Observations(seen).frame_shape is not None:
            raise ConfigError(
                f"{config.env} has observations of {seen}, but needs a Box of numbers"
            )
        if not isinstance(acts, spaces.Discrete | spaces.Box):
            raise ConfigError(f"{config.env} has actions of {acts}, but needs Discrete or a Box")
        self.spaces, self.actions = (seen, acts), actions_of(acts)
        self._first = self._jax.jit(self._jax.vmap(self._begin))
        self._next = self._jax.jit(self._jax.vmap(self._go_on))

    def values(self, laws: Laws, parameters: NDArray[np.float64]) -> dict[str, NDArray[Any]]:
        """Return the varied fields, each (n,), of tasks with parameters (n, p)."""
        rows = [laws.values(row) for row in parameters]
        columns = {name: np.array([row[name] for row in rows]) for name in rows[0]}
        for name, column in columns.items():
            if column.dtype.kind not in "biuf" or column.ndim > 1:
                raise ConfigError(
                    f"task.vary.{name} has values that are not numbers: {column[0]!r}"
                )
        return columns

    def first(self, *arguments: Any) -> Any:
        """Return states and observations; of keys (n, 2) and values, each (n,)."""
        return self._called(self._first, arguments)

    def next(self, *arguments: Any) -> Any:
        """Return states, observations, rewards and ends; of states, actions, keys, values."""
        return self._called(self._next, arguments)

    def map(self, function: Any, *trees: Any) -> Any:
        """Apply a function to the arrays of states."""
        return self._jax.tree_util.tree_map(function, *trees)

    def _begin(self, key: Any, values: dict[str, Any]) -> Any:
        parameters = dataclasses.replace(self._parameters, **values)
        keys = self._jax.random.split(key)
        state = self.environment.initial(keys[0], parameters)
        return state, self.environment.observation(state, keys[1], parameters)

    def _go_on(self, state: Any, action: Any, key: Any, values: dict[str, Any]) -> Any:
        parameters, env = dataclasses.replace(self._parameters, **values), self.environment
        keys = self._jax.random.split(key, 4)
        after = env.transition(state, action, keys[0], parameters)
        observation = env.observation(after, keys[1], parameters)
        reward = env.reward(state, action, after, keys[2], parameters)
        return after, observation, reward, env.terminal(after, keys[3], parameters)

    def _called(self, function: Any, arguments: tuple[Any, ...]) -> Any:
        """Call a compiled function with a number of rows that is a power of two."""
        n = len(self._jax.tree_util.tree_leaves(arguments)[0])
        rows = np.minimum(np.arange(1 << (n - 1).bit_length()), n - 1)
        with UserCode(lambda: self._name):
            try:
                found = function(*self.map(lambda part: part[rows], arguments))
                return self.map(lambda part: np.asarray(part)[:n], found)
            except FAILURES as error:
                raise EnvironmentFailure(f"{self._name} fails: {described(error)}") from error


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
        return code_digests([type(self._functions.environment)])

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
        self._functions, probe = _probe(json.dumps(config.model_dump(mode="json"), sort_keys=True))
        super().__init__(config, probe)

    def simulators(
        self, parameters: NDArray[np.float64], generator: np.random.Generator
    ) -> FunctionalSimulators:
        """Implement `SimulatedFamily.simulators`."""
        values = self._functions.values(self.config.laws, parameters)
        return FunctionalSimulators(self._functions, values, generator, self.sparse_reward)


@functools.cache
def _probe(config_json: str) -> tuple[Functions, Probe]:
    """Compile the functions, and play some training tasks at random."""
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


def _jax() -> ModuleType:
    """Import JAX for this process's CPU; ranks share a GPU badly.

    Raises:
        ConfigError: it is missing.
    """
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    try:
        import jax
    except ImportError as error:
        raise ConfigError(f"JAX is missing ({error}): pip install 'sad_hpc[jax]'") from error
    return jax


def _made(place: str) -> Any:
    """Make the environment of `module:Class`."""
    module, _, name = place.partition(":")
    found = getattr(import_user_module(module), name, None)
    if not (isinstance(found, type) and issubclass(found, FuncEnv)):
        raise ConfigError(f"task.env={place}: give module:Class with a subclass of FuncEnv")
    with UserCode(lambda: f"the making of {place}"):
        try:
            return found()
        except FAILURES as error:
            raise ConfigError(f"{place} cannot be made: {described(error)}") from error


def _with_fields(environment: Any, config: FunctionalConfig) -> Any:
    """Return the parameters of an environment with the fields of `task.make`."""
    parameters = environment.default_params
    if not dataclasses.is_dataclass(parameters):
        raise ConfigError(f"{config.env} has no get_default_params that returns a dataclass")
    known = [field.name for field in dataclasses.fields(parameters)]
    for key, named in (("make", config.make), ("vary", config.vary)):
        if unknown := [name for name in named if name not in known]:
            raise ConfigError(
                f"task.{key}.{unknown[0]}: {config.env} has the parameters {', '.join(known)}"
            )
    return dataclasses.replace(parameters, **config.make)  # type: ignore[type-var]
