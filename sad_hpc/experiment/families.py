"""Task families by name: entry points of the group `sad_hpc.tasks` in any installed package.

`sad_hpc.experiment` relies only on the interface `sad_hpc.tasks.base.TaskFamily` and imports no
family directly.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

from pydantic import Field

from sad_hpc.experiment.config import Section
from sad_hpc.experiment.installed import installed
from sad_hpc.user_code import UserCode

Horizon = Annotated[int, Field(ge=1, le=100_000)]
"""Number of transitions in a context; attention over more does not fit into memory."""


class TaskConfig(Section):
    """The keys that every family's `task` section has; each family adds its own parameters."""

    family: str
    horizon: Horizon
    """T: the number of transitions in a context, and of steps in an episode."""


def family_class(name: Any) -> type[Any]:
    """Return the class of the family that a config's `task.family` names.

    Raises:
        ConfigError: see `installed`.
    """
    family: type[Any] = installed("task.family", name)
    return family


def new_family(config: TaskConfig) -> Any:
    """Return the `sad_hpc.tasks.base.TaskFamily` that a `task` section describes."""
    found = family_class(config.family)
    with UserCode(lambda: f"task.family={config.family}"):
        return found(config)


def family_of(config: TaskConfig) -> Any:
    """Return `new_family(config)`; within `families_made_once`, the same object for equal configs.

    Settings are checked against the family in hundreds of places, and it can take long to make.
    """
    if _made is None:
        return new_family(config)
    key = type(config), config.model_dump_json()
    if key not in _made:
        _made[key] = new_family(config)
    return _made[key]


_made: dict[tuple[type[TaskConfig], str], Any] | None = None
"""The families by config, of `families_made_once`."""


@contextmanager
def families_made_once() -> Iterator[None]:
    """Let `family_of` keep families.

    It is for a process that does one command.  In an interactive session the user's code may change
    between two calls.
    """
    global _made
    _made = {}
    try:
        yield
    finally:
        _made = None
