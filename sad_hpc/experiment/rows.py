"""The rows of a table: methods, methods with other settings, and grids of settings.

recipes:
  plus: {data.queries_per_task: 16, pretrain.resample_probability: 0.5}

rows:
  - SAD                                                     # a method as the config has it
  - {name: "SAD, N_ep = 64", method: SAD, set: {data.episodes_per_action: 64}}
  - {name: SAD+, method: SAD, use: plus}                    # with the settings of a recipe
  - {name: "SAD+, 1 layer", method: SAD, use: plus, set: {model.layers: 1}}
  - {method: SAD, grid: {data.trust_horizon: [3, 7], model.heads: [1, 2]}}   # every combination
  - {method: DPT, replicates: 5}                            # with the first five seeds only
"""

import itertools
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from sad_hpc.experiment.config import Section
from sad_hpc.experiment.methods import METHODS

MAX_ROWS = 10_000
"""Most rows of an experiment; each is trained separately."""

MAX_NAME = 100
"""Most characters of an experiment's or a row's name, which become file names."""

NAME = re.compile(r"(?P<method>[^,+]+)(?P<recipe>\+?)(?:,(?P<words>[A-Za-z0-9 _.,*=()+-]+))?")
"""Pattern of a row's name: a method, an optional plus for a recipe, and distinguishing words."""

SYMBOLS = {
    "data.queries_per_task": "K",
    "data.trust_horizon": "N",
    "data.episodes_per_action": "N_ep",
    "pretrain.learning_rate": "rate",
}
"""Short names of keys in row names; other keys appear by their last part."""

Settings = Mapping[str, Any]
"""Values by dotted key."""


class RowConfig(Section):
    """An entry of `rows`.  A plain string is the name of a method."""

    method: str
    name: str | None = None
    """Name in tables; by default that of the method.  A grid names its own rows."""
    use: str | None = None
    """Name of the recipe whose settings the row has."""
    set: dict[str, Any] = {}
    """Settings by dotted key; they override those of the recipe."""
    grid: dict[str, list[Any]] = {}
    """Lists of values by dotted key; every combination becomes a row."""
    replicates: int | None = Field(None, ge=1)
    """Number of the experiment's seeds that the row has, from the first on; None: all."""

    @model_validator(mode="before")
    @classmethod
    def _of_word(cls, given: Any) -> Any:
        return {"method": given} if isinstance(given, str) else given

    @model_serializer(mode="wrap")
    def _shortest(self, serialize: SerializerFunctionWrapHandler) -> Any:
        """Serialize without defaults, and a bare method as a string."""
        given = {key: value for key, value in serialize(self).items() if value not in (None, {})}
        return self.method if list(given) == ["method"] else given


@dataclass(frozen=True)
class Row:
    """A method with settings that differ from the experiment's."""

    method: str
    settings: Settings
    replicates: int | None = None
    """Number of the experiment's seeds that the row has, from the first on; None: all."""


def rows_of(given: Sequence[RowConfig], recipes: Mapping[str, Settings]) -> dict[str, Row]:
    """Return all rows by name, in the config's order.

    Args:
        given: the entries of `rows`.
        recipes: named settings.

    Raises:
        ValueError: an entry is invalid, or two rows would have the same file names.
    """
    rows: dict[str, Row] = {}
    for entry in given:
        made = _grid_rows(entry) if entry.grid else [_single_row(entry, recipes)]
        for name, row in made:
            if name in rows:
                raise ValueError(f"rows repeat {name!r}")
            rows[name] = row
        if len(rows) > MAX_ROWS:
            raise ValueError(f"rows: {len(rows):,} are too many; at most {MAX_ROWS:,}")
    check_distinct(list(rows))
    return rows


def _single_row(entry: RowConfig, recipes: Mapping[str, Settings]) -> tuple[str, Row]:
    _check_method(entry.method)
    if entry.use is not None and entry.use not in recipes:
        valid = ", ".join(recipes) or "there are none"
        raise ValueError(f"rows: unknown recipe {entry.use!r}; valid: {valid}")
    settings = {**recipes.get(entry.use or "", {}), **entry.set}
    name = entry.name or entry.method
    if name == entry.method:
        if settings:
            raise ValueError(
                f"rows: {name} has changed settings: give the row a name, such as '{name}+' or "
                f"'{name}, words'"
            )
        return name, Row(entry.method, {}, entry.replicates)
    _check_name(name, entry.method)
    if not settings:
        raise ValueError(f"rows: {name}: no setting differs; add `set` or `use`")
    return name, Row(entry.method, settings, entry.replicates)


def _grid_rows(entry: RowConfig) -> list[tuple[str, Row]]:
    _check_method(entry.method)
    if entry.name or entry.use or entry.set:
        raise ValueError("rows: an entry with `grid` cannot have `name`, `use` or `set`")
    if (count := math.prod(map(len, entry.grid.values()))) > MAX_ROWS:
        raise ValueError(f"grid: {count:,} rows are too many; at most {MAX_ROWS:,}")
    for key, values in entry.grid.items():
        _check_values(key, values)
    points = [
        dict(zip(entry.grid, values, strict=True))
        for values in itertools.product(*entry.grid.values())
    ]
    return [
        (point_name(entry.method, point), Row(entry.method, point, entry.replicates))
        for point in points
    ]


def grid_keys(given: Sequence[RowConfig]) -> list[str]:
    """Return the dotted keys of the first grid; empty without a grid."""
    return next((list(entry.grid) for entry in given if entry.grid), [])


def method_of(row: str) -> str | None:
    """Return the method that a row's name begins with, or None if it begins with none."""
    found = NAME.fullmatch(row)
    return found["method"] if found and found["method"] in METHODS else None


def is_recipe(row: str) -> bool:
    """Return whether a row's name has a plus, such as `SAD+` and `SAD+, history`."""
    found = NAME.fullmatch(row)
    return found is not None and method_of(row) is not None and bool(found["recipe"])


def symbol(key: str) -> str:
    """Return a key's short name, for names of rows and axes."""
    return SYMBOLS.get(key, key.rpartition(".")[2])


def point_name(method: str, point: Settings) -> str:
    """Return the name of a grid's row, such as `SAD, N = 7`."""
    settings = ", ".join(f"{symbol(key)} = {value}" for key, value in point.items())
    return f"{method}, {settings}"


def slug(row: str) -> str:
    """Return a row's name in file names, such as `sad`, `sad_n_ep_64` or `sad_plus_history`."""
    if row in METHODS:
        return METHODS[row].slug
    name = METHODS[method].slug + row[len(method) :] if (method := method_of(row)) else row
    words = name.lower().replace("*", " star ").replace("= -", "= minus ")
    if is_recipe(row):  # elsewhere a plus is not spelled out
        words = words.replace("+", " plus ", 1)
    return re.sub(r"[^a-z0-9]+", "_", words).strip("_")


def check_distinct(rows: Sequence[str]) -> None:
    """Check that names of rows give distinct and short file names.

    Raises:
        ValueError: two rows have the same file name, or a name is too long.
    """
    seen: dict[str, str] = {}
    for row in rows:
        if max(len(row), len(slug(row))) > MAX_NAME:
            raise ValueError(
                f"the name of row {row[:40] + '...'!r} has {len(row)} characters: use at most "
                f"{MAX_NAME}"
            )
        if slug(row) in seen:
            raise ValueError(f"rows {seen[slug(row)]!r} and {row!r} would have the same file names")
        seen[slug(row)] = row


def _check_method(method: str) -> None:
    if method not in METHODS:
        raise ValueError(f"rows: unknown method {method!r}; valid: {', '.join(METHODS)}")


def _check_name(name: str, method: str) -> None:
    found = NAME.fullmatch(name)
    words = found["words"] if found else None
    if method_of(name) != method or (words is not None and not words.strip()):
        raise ValueError(
            f"{name!r} is not a valid name for a row of {method}: write the method, then a plus, "
            "or a comma and letters, digits, blanks and _.,*=()+-, or both, as in 'SAD+', "
            "'SAD, N_ep = 64' and 'SAD+, history'"
        )


def _check_values(key: str, values: Sequence[Any]) -> None:
    if not values:
        raise ValueError(f"grid: {key} has no values")
    if any(isinstance(value, list | dict) for value in values):
        raise ValueError(f"grid: values of {key} must be numbers, words or null")
    if len(set(map(repr, values))) < len(values):
        raise ValueError(f"grid: {key} repeats a value: {values}")
