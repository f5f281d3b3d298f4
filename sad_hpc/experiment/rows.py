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

MAX_NAME = 100
"""Characters of an experiment's name, and of a row's: files are named after them."""

NAME = re.compile(r"(?P<method>[^,+]+)(?P<recipe>\+?)(?:,(?P<words>[A-Za-z0-9 _.,*=()+-]+))?")
"""Of a row: a method, a plus where it is a recipe, and words that tell it from others."""

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


def method_of(row: str) -> str | None:
    """The method that a row's name begins with; None of other names, as of reference policies."""
    found = NAME.fullmatch(row)
    return found["method"] if found and found["method"] in METHODS else None


def is_recipe(row: str) -> bool:
    """Whether a row is a recipe or one of its variants, such as `SAD+` and `SAD+, history`."""
    found = NAME.fullmatch(row)
    return found is not None and method_of(row) is not None and bool(found["recipe"])


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
    method, found = method_of(name), NAME.fullmatch(name)
    words = found["words"] if found else None
    if method is None or name == method or (words is not None and not words.strip()):
        raise ValueError(
            f"{name!r} is no name for a variant: begin with a method, then a plus, or a comma and "
            "letters, digits, blanks and _.,*=()+-, or both, as in 'SAD+', 'SAD, N_ep = 64' and "
            f"'SAD+, history'; methods: {', '.join(METHODS)}"
        )
    if is_recipe(name):
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
    """A row's name in names of files: a method's own, `sad_n_ep_64`, or `sad_plus_history`."""
    if row in METHODS:
        return METHODS[row].slug
    name = METHODS[method].slug + row[len(method) :] if (method := method_of(row)) else row
    words = name.lower().replace("*", " star ").replace("= -", "= minus ")
    if is_recipe(row):  # a plus elsewhere is no word: files of such rows keep their names
        words = words.replace("+", " plus ", 1)
    return re.sub(r"[^a-z0-9]+", "_", words).strip("_")


def check_distinct(rows: Sequence[str]) -> None:
    """Names of rows must differ, also as names of files, and be short enough for these.

    Raises:
        ValueError: two of them do not, or one is too long.
    """
    seen: dict[str, str] = {}
    for row in rows:
        if max(len(row), len(slug(row))) > MAX_NAME:
            raise ValueError(
                f"the name of row {row[:40] + '...'!r} has {len(row)} characters: use at most "
                f"{MAX_NAME}"
            )
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
