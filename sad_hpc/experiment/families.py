"""Task families by name: entry points of the group `sad_hpc.tasks` in any installed package.

`sad_hpc.experiment` relies only on the interface `sad_hpc.tasks.base.TaskFamily` and imports no
family directly.
"""

import functools
from importlib.metadata import EntryPoints, entry_points
from typing import Annotated, Any

from pydantic import Field

from sad_hpc.errors import ConfigError
from sad_hpc.experiment.config import Section
from sad_hpc.user_code import UserCode, entry_point_object

GROUP = "sad_hpc.tasks"

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
        ConfigError: the name is unknown (the message lists the valid ones), or the import fails.
    """
    known = _families()
    if not isinstance(name, str) or name not in known.names:
        valid = ", ".join(sorted(known.names)) or f"none is installed (entry points {GROUP!r})"
        raise ConfigError(f"task.family: unknown {name!r}; valid: {valid}")
    place = known[name]
    try:
        family: type[Any] = entry_point_object(place)
    except ConfigError as error:
        raise ConfigError(f"task.family={name}: no class {place.value}: {error}") from error
    return family


def new_family(config: TaskConfig) -> Any:
    """Return the `sad_hpc.tasks.base.TaskFamily` that a `task` section describes."""
    found = family_class(config.family)
    with UserCode(lambda: f"task.family={config.family}"):
        return found(config)


@functools.cache
def _families() -> EntryPoints:
    return entry_points(group=GROUP)
