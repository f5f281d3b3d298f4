"""Rows of a table besides the methods: a method with other settings, alone or as a sweep's point.

variants:
  "SAD, N_ep = 64": {data.episodes_per_action: 64}
  SAD+: {}                  # with the settings of the config's `recipe`
  SAD+, 1 layer: {model.layers: 1}

recipe: {data.queries_per_task: 16, pretrain.repeated_contexts: 0.5}

sweep:                      # every combination, of every method of the config
  data.trust_horizon: [3, 7, 15]
  model.heads: [1, 2, 4]
"""

import itertools
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sad_hpc.experiment.methods import METHODS

MAX_ROWS = 10_000
"""Each is a training: more of them are a mistake."""

NAME = re.compile(r"[A-Za-z0-9 _.,*=()+-]+")

PLUS = "+"
"""After a method: with the settings of the config's `recipe`."""

SYMBOLS = {
    "data.queries_per_task": "K",
    "data.trust_horizon": "N",
    "data.episodes_per_action": "N_ep",
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


def named_variant(name: str, values: Mapping[str, Any], recipe: Mapping[str, Any]) -> Variant:
    """The variant of a config's `variants` section; its name begins with its method's.

    Args:
        name: `METHOD, words`, or `METHOD+` with or without words for the recipe's rows.
        values: by dotted key.
        recipe: further values of a row whose method is followed by a plus.

    Raises:
        ValueError: its name cannot be used, or it changes nothing.
    """
    first, comma, words = name.partition(",")
    method = first.removesuffix(PLUS)
    has_words = NAME.fullmatch(words) is not None and bool(words.strip())
    if method not in METHODS or not (has_words if comma else first != method):
        raise ValueError(
            f"{name!r} is no name for a variant: begin with a method, then a comma and letters, "
            "digits, blanks and _.,*=()+-, as in 'SAD, N_ep = 64'; or a method and a plus, for the "
            f"settings of `recipe`, as in 'SAD+'; methods: {', '.join(METHODS)}"
        )
    if first != method:
        values = {**recipe, **values}
    if not values:
        raise ValueError(f"{name}: no setting differs")
    return Variant(method, values)


def sweep_variants(
    sweep: Mapping[str, Sequence[Any]], methods: Sequence[str]
) -> dict[str, Variant]:
    """Every combination of a sweep's values for every method, by names such as `SAD, N = 7`.

    Raises:
        ValueError: there are too many, or a key's values cannot be swept.
    """
    if (rows := math.prod(map(len, [methods, *sweep.values()]))) > MAX_ROWS:
        raise ValueError(f"sweep: {rows:,} rows are too many for one table; at most {MAX_ROWS:,}")
    for key, values in sweep.items():
        _check_swept(key, values)
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
    first, comma, rest = row.lower().partition(",")
    words = first.replace(PLUS, " plus") + comma + rest
    words = words.replace("*", " star ").replace("= -", "= minus ")
    return re.sub(r"[^a-z0-9]+", "_", words).strip("_")


def check_distinct(rows: Sequence[str]) -> None:
    """Names of rows must differ, also as names of files.

    Raises:
        ValueError: two of them do not.
    """
    seen: dict[str, str] = {}
    for row in rows:
        if slug(row) in seen:
            raise ValueError(f"rows {seen[slug(row)]!r} and {row!r} would have the same files")
        seen[slug(row)] = row


def _check_swept(key: str, values: Sequence[Any]) -> None:
    if not values:
        raise ValueError(f"sweep: {key} has no values")
    if any(isinstance(value, list | dict) for value in values):
        raise ValueError(f"sweep: values of {key} must be numbers, words or null")
    if len(set(map(repr, values))) < len(values):
        raise ValueError(f"sweep: {key} repeats a value: {values}")
