"""A task of a registered environment: arguments of gymnasium.make, and attributes to set."""

import difflib
import inspect
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import gymnasium
from gymnasium.envs.registration import load_env_creator

from sad_hpc.errors import ConfigError, described, printable
from sad_hpc.tasks.environments.atari import take_over_sticky_actions
from sad_hpc.tasks.environments.simulator import Environment
from sad_hpc.user_code import FAILURES, MissingModule, UserCode, fault_of, import_user_module

PACKAGES = {
    "ALE/": ("ale_py", "ale-py"),
    "MiniGrid-": ("minigrid", "minigrid"),
    "BabyAI-": ("minigrid", "minigrid"),
}
"""Prefixes of ids, the modules that register them, and the packages to install."""


@dataclass(frozen=True)
class EnvironmentTask:
    """An environment and its parameters; see `make_environment`."""

    id: str
    """Id of the environment; "module:Id" imports the module first."""
    make: Mapping[str, Any] = field(default_factory=dict)
    """Keyword arguments of gymnasium.make."""
    attributes: Mapping[str, Any] = field(default_factory=dict)
    """Attributes of the unwrapped environment, set before its first episode."""

    def __str__(self) -> str:
        parameters = {**self.make, **self.attributes}
        listed = ", ".join(f"{name}={value}" for name, value in parameters.items())
        return printable(f"{self.id} ({listed})" if listed else self.id)


def make_environment(task: EnvironmentTask) -> Environment:
    """Make the environment of a task, without a time limit.

    The counter of a time limit would be part of the state, and callers count steps themselves.
    Values that a class derives from an attribute in `__init__` do not follow a later change of the
    attribute.  A parameter in `make` has no such problem.

    Raises:
        ConfigError: the environment cannot be imported, found or made, or lacks an attribute.
    """
    with UserCode(lambda: f"the making of {printable(task.id)}"):
        _import_package(task.id)
        environment = _made(task.id, task.make)
        take_over_sticky_actions(environment)
        for name, value in task.attributes.items():
            _set_attribute(environment, task.id, name, value)
    return environment


def _made(id: str, make: Mapping[str, Any]) -> Environment:
    try:
        return gymnasium.make(id, max_episode_steps=-1, disable_env_checker=True, **make)
    except gymnasium.error.DependencyNotInstalled as error:
        raise ConfigError(f"{id} lacks a package: {printable(str(error))}") from error
    except gymnasium.error.UnregisteredEnv as error:
        raise ConfigError(f"there is no environment {printable(id)}{_nearest(id)}") from error
    except FAILURES as error:  # including errors of the user's code
        raise ConfigError(_why_not_made(id, make, error)) from error


def _why_not_made(id: str, make: Mapping[str, Any], error: BaseException) -> str:
    """Describe why gymnasium.make failed: an unknown argument, or the error itself."""
    takes = _arguments(id)
    for name in make:
        if takes is not None and name not in takes:
            return f"{id} takes no argument {name}{_suggestion(name, takes)}"
    made = f"gymnasium.make({id!r}, **{dict(make)})"
    # A SyntaxError comes from the module of the environment's class.
    fault = fault_of(error) if isinstance(error, SyntaxError) else described(error)
    return f"{made} fails: {fault}"


def _arguments(id: str) -> list[str] | None:
    """Return the argument names of an environment; None if it accepts any or they are unknown."""
    with suppress(*FAILURES):  # entry points of users can be of any kind
        entry_point = gymnasium.spec(id.rpartition(":")[2]).entry_point
        creator = load_env_creator(entry_point) if isinstance(entry_point, str) else entry_point
        if creator is not None:
            takes = inspect.signature(creator).parameters
            if all(each.kind is not inspect.Parameter.VAR_KEYWORD for each in takes.values()):
                return list(takes)
    return None


def _import_package(id: str) -> None:
    """Import the module that registers the environment."""
    known = next((PACKAGES[start] for start in PACKAGES if id.startswith(start)), None)
    module, package = known or (id.partition(":")[0] if ":" in id else "", "")
    if not module:
        return
    if module.startswith("."):
        raise ConfigError(
            f"task.env={printable(id)}: {printable(module)} is a relative import; give the "
            "module's full name, and add its folder to PYTHONPATH"
        )
    try:
        import_user_module(module)
    except MissingModule as error:
        remedy = (
            f"pip install {package}"
            if package
            else "install its package, or add its folder to PYTHONPATH"
        )
        raise ConfigError(f"{printable(id)}: {error}: {remedy}") from error
    except ConfigError as error:
        raise ConfigError(f"{printable(id)}: {error}") from error


def _set_attribute(environment: Environment, id: str, name: str, value: Any) -> None:
    plain = environment.unwrapped
    try:
        if not hasattr(plain, name):
            own = [other for other in vars(plain) if not other.startswith("_")]
            raise ConfigError(f"{id} has no attribute {name}{_suggestion(name, own)}")
        setattr(plain, name, value)
    except ConfigError:
        raise
    except FAILURES as error:
        text = f"attribute {name} of {id} cannot be set to {value!r}"
        raise ConfigError(f"{text}: {described(error)}") from error


def _nearest(id: str) -> str:
    return _suggestion(id.rpartition(":")[2], list(gymnasium.registry)) or (
        ': write "module:Id" to import the module that registers it'
    )


def _suggestion(word: str, known: list[str]) -> str:
    near = difflib.get_close_matches(word, known, n=3)
    return f"; the nearest: {', '.join(near)}" if near else ""
