"""Loading of experiments; precedence: defaults < the file's `base` < the file < overrides."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sad_hpc.errors import ConfigError
from sad_hpc.experiment.checks import check_experiment
from sad_hpc.experiment.config import Role, apply_overrides, build, fields_of, read_yaml
from sad_hpc.experiment.experiment import Experiment
from sad_hpc.experiment.families import TaskConfig, family_class

MAX_FILES = 32
"""Most config files in a chain of `base` and `pretrained`."""

WHOLE = ("recipes", "pretrained")
"""Keys whose value in a file replaces that of its base instead of being merged."""


def load_experiment(path: Path, overrides: Sequence[str] = ()) -> Experiment[TaskConfig]:
    """Load a config file: defaults < its base < the file itself < `key.sub=value` overrides.

    `base: FILE` merges the file's sections over those of another file.  `pretrained: FILE` stands
    for that file's content, so overrides can reach into it.  Both paths are relative to the file.
    An override such as `rows=[SAD+]` chooses rows of the file by their names.

    Raises:
        ConfigError: the file is invalid; one line names the file, the key and the valid choices.
    """
    given = _read(path)
    mapping = apply_overrides(given, overrides)
    if mapping.get("rows") != given.get("rows"):
        mapping = _with_chosen_rows(mapping, given)
    return parse_experiment(mapping, " ".join([str(path), *overrides]))


def _with_chosen_rows(mapping: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """Return a mapping whose `rows` may be names of rows in a file.

    Args:
        mapping: the sections with overrides.
        given: the sections of the file; its claims about rows that were not chosen are dropped.
    """
    rows, own, claims = mapping["rows"], given.get("rows"), given.get("claims")
    if not isinstance(rows, list) or not isinstance(own, list):
        return mapping
    known = {_name(row): row for row in own}
    chosen = {
        **mapping,
        "rows": [known.get(row, row) if isinstance(row, str) else row for row in rows],
    }
    if isinstance(claims, list) and mapping["claims"] == claims:
        names = set(map(_name, rows))
        chosen["claims"] = [
            claim for claim in claims if not isinstance(claim, list) or names >= {*map(str, claim)}
        ]
    return chosen


def _name(row: Any) -> str | None:
    """Return the name of an entry of `rows`; None if it is a grid or invalid."""
    if isinstance(row, dict):
        row = None if "grid" in row else row.get("name", row.get("method"))
    return row if isinstance(row, str) else None


def _read(path: Path, readers: tuple[Path, ...] = ()) -> dict[str, Any]:
    """Return the sections of a file, merged with those of the files that it names.

    Args:
        path: the file.
        readers: the files that led to it.

    Raises:
        ConfigError: a file cannot be read, the files form a cycle, or the chain is too long.
    """
    if len(readers) == MAX_FILES:
        raise ConfigError(
            f"{readers[0]}: more than {MAX_FILES} config files lead to one another by `base` and "
            "`pretrained`; merge some of them"
        )
    mapping = read_yaml(path)
    readers = (*readers, path)
    if any(path.samefile(each) for each in readers[:-1]):
        raise ConfigError(f"config files form a cycle: {' -> '.join(map(str, readers))}")
    if isinstance(mapping.get("pretrained"), str):
        mapping["pretrained"] = _read(path.parent / mapping["pretrained"], readers)
    base = mapping.pop("base", None)
    if base is None:
        return mapping
    if not isinstance(base, str):
        raise ConfigError(f"{path}: 'base' must be the path of a config file, not {base!r}")
    return _merged(_read(path.parent / base, readers), mapping)


def _merged(base: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    """Return `base` updated with the values of `own`, section by section."""
    merged = base | own
    for key in base.keys() & own.keys() - set(WHOLE):
        if isinstance(base[key], dict) and isinstance(own[key], dict):
            merged[key] = _merged(base[key], own[key])
    return merged


def parse_experiment(mapping: dict[str, Any], where: str) -> Experiment[TaskConfig]:
    """Return the experiment that a mapping of sections describes; errors name `where`.

    Raises:
        ConfigError: see `load_experiment`.
    """
    task = mapping.get("task")
    if not isinstance(task, dict) or "family" not in task:
        raise ConfigError(f"{where}: required key 'task.family' is missing")
    try:
        family = family_class(task["family"])
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None
    if mapping.get("pretrained") is not None:
        mapping = _inherit(mapping, where)
    experiment = build(Experiment[family.config_class], mapping, where)  # type: ignore[name-defined]
    check_experiment(experiment, where)
    return experiment


def _inherit(mapping: dict[str, Any], where: str) -> dict[str, Any]:
    """Return the mapping with `pretrained` parsed and with the keys that it decides filled in."""
    pretrained = mapping["pretrained"]
    if not isinstance(pretrained, dict):
        raise ConfigError(f"{where}: 'pretrained' must be the path of a config file, in a file")
    parsed = parse_experiment(pretrained, f"{where}: pretrained")
    if parsed.pretrained is not None:
        raise ConfigError(
            f"{where}: the 'pretrained' config itself has 'pretrained': name that file instead"
        )
    decided = {"rows", "recipes", "seeds", *fields_of(Experiment, Role.TRAINING)}
    return {**parsed.model_dump(include=decided), **mapping, "pretrained": parsed}
