"""Task families by name: entry points of the group `sad_hpc.tasks` in any installed package.

`sad_hpc.experiment` relies only on the interface `sad_hpc.tasks.base.TaskFamily` and imports no
family directly.
"""

import functools
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
    """Return `new_family(config)`, the same object for equal configs.

    Settings are checked against the family, which can take long to make, in hundreds of places.
    """
    found: Any = family_class(config.family)
    return _family_of(found, type(config), config.model_dump_json())


@functools.lru_cache(maxsize=16)
def _family_of(_: object, config_class: type[TaskConfig], config_json: str) -> Any:
    return new_family(config_class.model_validate_json(config_json))
