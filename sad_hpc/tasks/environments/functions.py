"""The functions of a functional environment, compiled by JAX for many simulators at once."""

import dataclasses
import os
from types import ModuleType
from typing import Any, Literal

import numpy as np
from gymnasium import spaces
from gymnasium.experimental.functional import FuncEnv
from numpy.typing import NDArray

from sad_hpc.errors import ConfigError, EnvironmentFailure, described
from sad_hpc.tasks.environments.actions import actions_of
from sad_hpc.tasks.environments.family import SimulatorConfig
from sad_hpc.tasks.environments.laws import Laws
from sad_hpc.tasks.environments.observations import Observations
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
        self.code = code_digests([type(self.environment)])
        """Digests of the user's code of the environment (see `code_digests`)."""
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
