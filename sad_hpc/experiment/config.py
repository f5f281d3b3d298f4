"""Strict configuration: sections with known keys, YAML files, dotted overrides, and signatures.

A section is a pydantic model that refuses unknown keys and wrong types.  A field declares its
`Role`.  Fields with `Role.TRANSIENT` cannot change a result (paths, logging, workers), so the
signature, which names a stage's output folder, omits them.
"""

import difflib
import hashlib
import json
import math
import shlex
import typing
from collections.abc import Iterable, Mapping, Sequence
from enum import Flag, auto
from pathlib import Path
from typing import Any, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator
from pydantic.fields import FieldInfo

from sad_hpc.errors import ConfigError
from sad_hpc.experiment import per_round, plain_yaml

SCHEMA_VERSION = 1
"""Increased when a config or a stage's output changes meaning, so that no old folder is reused."""


class Section(BaseModel):
    """Base of every config section: immutable, strict, without unknown keys."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, protected_namespaces=(), allow_inf_nan=False
    )

    def __copy__(self) -> Self:
        """Copy without cached properties, which another value of a field may change."""
        copy = super().__copy__()
        for name in copy.__dict__.keys() - type(self).model_fields.keys():
            del copy.__dict__[name]
        return copy

    @field_validator("*")
    @classmethod
    def _check_content(cls, value: Any) -> Any:
        check_content(value)
        return value


def check_content(value: Any, depth: int = 0) -> None:
    """Check that `value` survives a round trip through JSON unchanged.

    Raises:
        ValueError: a number is not finite or does not fit into 64 bits, a string is not valid
            Unicode, a key is not a string, or the nesting exceeds `plain_yaml.MAX_DEPTH`.
    """
    if depth > plain_yaml.MAX_DEPTH:
        raise ValueError(f"is deeper than {plain_yaml.MAX_DEPTH} levels")
    if isinstance(value, dict):
        if not all(isinstance(key, str) for key in value):
            raise ValueError("has a key that is not a string")
        for part in (*value, *value.values()):
            check_content(part, depth + 1)
    elif isinstance(value, list | tuple):
        for part in value:
            check_content(part, depth + 1)
    elif isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"holds {value}: give a finite number")
    elif isinstance(value, int) and abs(value) >= 2**63:  # kernels and files count in 64 bits
        raise ValueError("is too large")
    elif isinstance(value, str) and any("\ud800" <= letter <= "\udfff" for letter in value):
        raise ValueError(f"holds {value!r}, which is not valid Unicode")


SectionT = TypeVar("SectionT", bound=BaseModel)


class Role(Flag):
    """The effect of a config field; a field may have several."""

    TRANSIENT = auto()
    """It cannot change the result (paths, logging, workers); the signature omits it."""
    ROW_SETTING = auto()
    """It may differ between the rows of a table."""
    TRAINING = auto()
    """A section that decides a model's training; rows may differ in all its keys."""
    TASK_SPLIT = auto()
    """A field of `task` that decides which tasks are for training."""
    OMIT_DEFAULT = auto()
    """A field added later; the signature omits it at its default, so older outputs stay valid."""


def with_role(role: Role, default: Any = ..., **constraints: Any) -> Any:
    """Return a `pydantic.Field` that carries a role."""
    return Field(default, json_schema_extra={"role": role.value}, **constraints)


def fields_of(section: type[BaseModel], role: Role) -> tuple[str, ...]:
    """Return the names of a section's fields that have a role."""
    return tuple(name for name, field in section.model_fields.items() if role in _role_of(field))


def _role_of(field: FieldInfo) -> Role:
    extra: Any = field.json_schema_extra
    return Role(extra["role"] if isinstance(extra, dict) else 0)


def read_yaml(path: Path) -> dict[str, Any]:
    """Return the mapping in a YAML file.

    Raises:
        ConfigError: the file is missing, is not YAML, or holds no mapping.
    """
    try:
        if path.exists() and not path.is_file():
            raise ConfigError(f"cannot read config {path}: it is not a regular file")
        with path.open(encoding="utf-8") as file:
            text = file.read(plain_yaml.MAX_CHARACTERS + 1)
    except (
        OSError,
        ValueError,
    ) as error:  # ValueError: a NUL in the path, or invalid UTF-8
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(f"cannot read config {str(path)!r}: {reason}") from error
    try:
        content = plain_yaml.parse(text)
    except ValueError as error:
        raise ConfigError(f"{path} is not valid YAML: {error}") from error
    if not isinstance(content, dict):
        raise ConfigError(f"{path} must hold a mapping of sections, not {type(content).__name__}")
    return content


def apply_overrides(mapping: dict[str, Any], overrides: Iterable[str]) -> dict[str, Any]:
    """Return `mapping` with each `key.sub=value` set; values are YAML (`[0, 1]`, `true`, `1e-3`).

    Raises:
        ConfigError: an override has no `=`, or goes through a key that holds no section.
    """
    result = json.loads(json.dumps(mapping))
    for override in overrides:
        path, separator, text = override.partition("=")
        if not separator:
            raise ConfigError(f"override {override!r} is not of the form key.sub=value")
        _set(result, path.strip(), _read_value(override, text), override)
    return result


def with_values(mapping: dict[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return `mapping` with values set by dotted key.

    Raises:
        ConfigError: a key goes through another one that holds no section.
    """
    result = json.loads(json.dumps(mapping))
    for path, value in values.items():
        _set(result, path, value, path)
    return result


def _set(mapping: dict[str, Any], path: str, value: Any, override: str) -> None:
    """Set the value at a dotted path; errors name `override`."""
    keys = path.split(".")
    if not all(keys) or len(keys) > plain_yaml.MAX_DEPTH:
        raise ConfigError(f"override {override!r} is not of the form key.sub=value")
    section = mapping
    for key in keys[:-1]:
        section = section.setdefault(key, {})
        if not isinstance(section, dict):
            raise ConfigError(f"override {override!r}: {key!r} is a value, not a section")
    section[keys[-1]] = value


def _read_value(override: str, text: str) -> Any:
    try:
        return plain_yaml.parse(text)
    except ValueError as error:
        raise ConfigError(f"override {override!r}: the value is not valid YAML: {error}") from error


def build(
    section: type[SectionT], mapping: Mapping[str, Any], where: str, prefix: str = ""
) -> SectionT:
    """Validate `mapping` and return it as a `section`.

    Args:
        section: the model to build.
        mapping: its values.
        where: the source of the values, for errors.
        prefix: prefix of the section's keys on a command line.

    Raises:
        ConfigError: one line that names `where`, the first wrong key and the valid choices.
    """
    try:
        return section.model_validate(dict(mapping))
    except ValidationError as error:
        raise ConfigError(f"{where}: {_explain(section, error, prefix)}") from None


def _explain(section: type[BaseModel], error: ValidationError, prefix: str) -> str:
    first = error.errors()[0]
    key = ".".join(str(part) for part in first["loc"] if part not in per_round.TAGS)
    more = f" ({error.error_count() - 1} more)" if error.error_count() > 1 else ""
    if first["type"] == "extra_forbidden":
        valid = _keys_at(section, [str(part) for part in first["loc"][:-1]])
        near = difflib.get_close_matches(str(first["loc"][-1]), valid, n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        return f"unknown key {key!r}; {hint}valid keys: {', '.join(valid)}{more}"
    if first["type"] == "missing":
        missing = [e["loc"] for e in error.errors() if e["type"] == "missing"]
        keys = ", ".join(repr(".".join(map(str, location))) for location in missing)
        if len(missing) > 1:
            return f"required keys {keys} are missing"
        return f"required key {keys} is missing{more}"
    if first["type"] in ("model_type", "model_attributes_type"):
        valid = _keys_at(section, [str(part) for part in first["loc"]])
        return f"{key}: needs keys ({', '.join(valid)}), not {first['input']!r}{more}"
    if first["type"] == "list_type" and isinstance(first["input"], str | int | float):
        value = first["input"] if isinstance(first["input"], str) else json.dumps(first["input"])
        value = " ".join(value.split())  # one line
        # User-defined keys, such as names of recipes, may hold dots; no override can name them.
        named = f"{prefix}{key}=" if not any("." in str(part) for part in first["loc"]) else ""
        return f"{key}: must be a list: write {shlex.quote(f'{named}[{value}]')}{more}"
    message = first["msg"].removeprefix("Value error, ")
    for unit in ("minutes", "seconds"):  # a YAML 1.1 reader would parse 10:00:00 as a number
        if key.endswith(unit) and isinstance(first["input"], str):
            message = f"must be a number of {unit}, such as 600"
    where = f"{key}: " if key else ""
    given = f", not {first['input']!r}" if isinstance(first["input"], str | int | float) else ""
    return f"{where}{message}{given}{more}"


def _keys_at(section: type[BaseModel], location: Sequence[str]) -> list[str]:
    """Return the valid keys of the section at `location` inside `section`."""
    inside: Any = section
    for part in location:
        if part in section.model_fields:
            inside = section.model_fields[part].annotation
        elif typing.get_origin(inside) is dict:  # sections by user-defined names
            inside = typing.get_args(inside)[1]
        if isinstance(inside, type) and issubclass(inside, BaseModel):
            section = inside
    return sorted(section.model_fields)


def resolved(section: BaseModel) -> dict[str, Any]:
    """Return the values of a section that can change a result, as plain JSON."""
    values = {  # in the same order in every process
        name: getattr(section, name)
        for name, field in type(section).model_fields.items()
        if not _is_omitted(field, getattr(section, name))
    }
    return json.loads(json.dumps(values, default=resolved))


def _is_omitted(field: FieldInfo, value: Any) -> bool:
    """Return whether a signature omits a field with this value."""
    role = _role_of(field)
    return Role.TRANSIENT in role or (Role.OMIT_DEFAULT in role and value == field.default)


def signature(
    stage: str,
    config: Mapping[str, Any],
    upstream: Sequence[str] = (),
    revision: int = 0,
) -> str:
    """Return 12 hex digits that identify a stage's output by its settings and inputs.

    Args:
        stage: the stage's name.
        config: the settings that can change its result, as JSON values (see `resolved`).
        upstream: signatures of the stages whose output it reads.
        revision: revision of this output, added to SCHEMA_VERSION.
    """
    identity = {
        "stage": stage,
        "schema": SCHEMA_VERSION + revision,
        "config": config,
        "upstream": list(upstream),
    }
    text = json.dumps(identity, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def differences(stored: Any, wanted: Any, prefix: str = "") -> list[str]:
    """Return the keys in which two resolved configs differ, as `key: stored -> wanted`."""
    if isinstance(stored, dict) and isinstance(wanted, dict):
        lines = []
        for key in sorted({*stored, *wanted}):
            name = f"{prefix}.{key}" if prefix else str(key)
            lines += differences(stored.get(key), wanted.get(key), name)
        return lines
    return [] if stored == wanted else [f"{prefix}: {stored!r} -> {wanted!r}"]
