"""Rows of a table besides the methods: a method with other settings, alone or as a sweep's point.

variants:
  "SAD, N_ep = 64": {data.episodes_per_action: 64}

sweep:                      # every combination, of every method of the config
  data.trust_horizon: [3, 7, 15]
  model.heads: [1, 2, 4]
"""

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sad_hpc.methods import METHODS

SECTIONS = ("data", "model", "dit", "pretrain")
"""Whose settings may differ: with others, rows of a table would not compare."""

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9 _.,*=()+-]*")

SYMBOLS = {
    "data.trust_horizon": "N",
    "data.episodes_per_action": "N_ep",
    "data.tasks": "tasks",
    "pretrain.learning_rate": "rate",
}
"""What a key is called in names; others by their last part."""


@dataclass(frozen=True)
class Variant:
    """A method with other settings."""

    method: str
    values: Mapping[str, Any]
    """By dotted key."""


def symbol(key: str) -> str:
    """What a key is called in names of rows and on axes."""
    return SYMBOLS.get(key, key.rpartition(".")[2])


def named_variant(name: str, settings: Mapping[str, Any]) -> Variant:
    """The variant of a config's `variants` section.

    Raises:
        ValueError: its name or a key cannot be used.
    """
    if not NAME.fullmatch(name) or name in METHODS or slug(name) in _SLUGS:
        raise ValueError(
            f"{name!r} is no name for a variant: use letters, digits, blanks and _.,*=()+- , and "
            f"none of {', '.join(METHODS)}"
        )
    method = str(settings.get("method", "SAD"))
    if method not in METHODS:
        raise ValueError(f"{name}: unknown method {method!r}; valid: {', '.join(METHODS)}")
    values = {key: value for key, value in settings.items() if key != "method"}
    _check_keys(name, values)
    return Variant(method, values)


def sweep_variants(
    sweep: Mapping[str, Sequence[Any]], methods: Sequence[str]
) -> dict[str, Variant]:
    """Every combination of a sweep's values for every method, by names such as `SAD, N = 7`.

    Raises:
        ValueError: a key cannot be swept.
    """
    _check_keys("sweep", sweep)
    found = {}
    for method, values in itertools.product(methods, itertools.product(*sweep.values())):
        point = dict(zip(sweep, values, strict=True))
        settings = ", ".join(f"{symbol(key)} = {value}" for key, value in point.items())
        found[f"{method}, {settings}"] = Variant(method, point)
    return found


def slug(row: str) -> str:
    """A row's name in names of files: a method's own, or `sad_n_ep_64`."""
    if row in METHODS:
        return METHODS[row].slug
    return re.sub(r"[^a-z0-9]+", "_", row.lower().replace("*", " star ")).strip("_")


_SLUGS = {method.slug for method in METHODS.values()}


def _check_keys(name: str, settings: Mapping[str, Any]) -> None:
    for key in settings:
        section, dot, rest = str(key).partition(".")
        if section not in SECTIONS or not dot or not rest:
            valid = ", ".join(f"{section}.KEY" for section in SECTIONS)
            raise ValueError(f"{name}: {key!r} cannot differ within a table; valid: {valid}")
    if not settings:
        raise ValueError(f"{name}: no setting differs")
