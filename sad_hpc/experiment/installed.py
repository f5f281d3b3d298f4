"""Objects of installed packages that a config names: entry points of a group for each key."""

import functools
from importlib.metadata import EntryPoints, entry_points
from typing import Any

from sad_hpc.errors import ConfigError
from sad_hpc.experiment.sections import CROSS_ENTROPY, GPT2
from sad_hpc.user_code import entry_point_object

GROUPS = {
    "task.family": "sad_hpc.tasks",
    "model.architecture": "sad_hpc.models",
    "pretrain.loss": "sad_hpc.losses",
}
"""The group of each key whose values are names of entry points."""

BUILT_IN = {"model.architecture": (GPT2,), "pretrain.loss": (CROSS_ENTROPY,)}
"""Valid values of these keys that are not entry points."""


def installed(key: str, name: Any) -> Any:
    """Return the object that a key of GROUPS names.

    Raises:
        ConfigError: the name is unknown (the message lists the valid ones), or the import fails.
    """
    known = _points(key)
    if not isinstance(name, str) or name not in known.names:
        valid = sorted({*known.names, *BUILT_IN.get(key, ())})
        raise ConfigError(
            f"{key}: unknown {name!r}; valid: {', '.join(valid)}, and those of other packages that "
            "are installed"
        )
    place = known[name]
    try:
        return entry_point_object(place)
    except ConfigError as error:
        raise ConfigError(f"{key}={name}: no object {place.value}: {error}") from error


@functools.cache
def _points(key: str) -> EntryPoints:
    return entry_points(group=GROUPS[key])
