"""Reading an experiment: defaults < YAML < overrides, and `trust_horizon: auto` as numbers."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sad_hpc.config import apply_overrides, build, read_yaml
from sad_hpc.errors import ConfigError
from sad_hpc.experiment import TRAINING, Experiment
from sad_hpc.experiment_checks import check_experiment
from sad_hpc.tasks import TaskConfig
from sad_hpc.tasks.base import family_class

AUTO, TRUSTWORTHINESS = "auto", "trustworthiness"


def load_experiment(path: Path, overrides: Sequence[str] = ()) -> Experiment[TaskConfig]:
    """Reads a config file: defaults < YAML < `key.sub=value` overrides.

    `pretrained: FILE` stands for that file's content, so that overrides reach into it, and
    `data.trust_horizon: auto` for the N and N_ep that random data call for.

    Raises:
        ConfigError: one line with the file, the key and the valid choices.
    """
    mapping = read_yaml(path)
    if isinstance(mapping.get("pretrained"), str):
        mapping["pretrained"] = read_yaml(path.parent / mapping["pretrained"])
    mapping = apply_overrides(mapping, overrides)
    source = " ".join([str(path), *overrides])
    return parse_experiment(_with_horizons(mapping, source), source)


def _with_horizons(mapping: dict[str, Any], source: str) -> dict[str, Any]:
    """The mapping with numbers for every `auto`, so that all that follows sees numbers alone."""
    found = dict(mapping)
    if isinstance(found.get("pretrained"), dict):
        found["pretrained"] = _with_horizons(found["pretrained"], source)
    plain = {key: value for key, value in found.items() if key not in ("variants", "sweep")}
    data, variants = found.get("data"), found.get("variants")
    if isinstance(data, dict):
        found["data"] = _data_with_horizon(plain, data, source)
        plain["data"] = found["data"]
    if isinstance(data, dict) and isinstance(variants, dict):
        found["variants"] = {
            name: _settings_with_horizon(plain, settings, f"{source}: {name}")
            for name, settings in variants.items()
        }
    return found


def _settings_with_horizon(plain: dict[str, Any], settings: Any, source: str) -> Any:
    """A variant's settings, by dotted keys, without `auto`; `plain` is what they change."""
    if not isinstance(settings, dict):
        return settings
    prefix = "data."
    own = {key.removeprefix(prefix): value for key, value in settings.items()
           if str(key).startswith(prefix)}  # fmt: skip
    others = {key: value for key, value in settings.items() if not str(key).startswith(prefix)}
    # What the experiment itself says of N and N_ep is no choice for the variant.
    base = {key: value for key, value in plain["data"].items()
            if key not in ("trust_horizon", "episodes_per_action", "chosen")}  # fmt: skip
    found = _data_with_horizon(plain, own, source, base)
    return {**{f"{prefix}{key}": value for key, value in found.items()}, **others}


def _data_with_horizon(
    plain: dict[str, Any], data: dict[str, Any], source: str, base: dict[str, Any] | None = None
) -> dict[str, Any]:
    """A `data` section without `auto`, and without the trustworthiness that only it asks for.

    Args:
        plain: the config without variants and sweep.
        data: the section, or what a variant changes of it.
        source: named in errors.
        base: the rest of the section.

    Raises:
        ConfigError: the trustworthiness that is asked for is none.
    """
    rest = {key: value for key, value in data.items() if key != TRUSTWORTHINESS}
    if data.get("trust_horizon") != AUTO:
        return rest if "trust_horizon" in data else data
    asked = data.get(TRUSTWORTHINESS)
    if asked is not None and (not isinstance(asked, float) or not 0 < asked < 1):
        raise ConfigError(
            f"{source}: data.trustworthiness must be a number between 0 and 1, not {asked!r}"
        )
    whole = {**plain, "data": {**(base or {}), **rest, "trust_horizon": 1}}
    experiment = parse_experiment(whole, source)
    return {**rest, **_chosen_rule(experiment, asked, rest.get("episodes_per_action"), source)}


def _chosen_rule(
    experiment: Experiment[TaskConfig], asked: float | None, episodes: int | None, source: str
) -> dict[str, Any]:
    """N, N_ep (unless given) and what speaks for them, which is also said in a line."""
    from sad_hpc.distill import choose  # compiled kernels

    asked = choose.TRUSTWORTHINESS if asked is None else asked
    family = family_class(experiment.task.family)(experiment.task)
    counts = choose.EPISODES if episodes is None else (episodes,)
    tried = choose.candidates(family, experiment.data, asked, counts)
    best = choose.choose(tried, asked)
    verdict = "" if best.consensus >= asked else "NOT "
    print(f"{source}: {best}; {asked:g} was asked for and {verdict}reached", file=sys.stderr)
    return {
        "trust_horizon": best.trust_horizon,
        "episodes_per_action": best.episodes_per_action,
        "chosen": {
            "asked": asked,
            "consensus": best.consensus,
            "rules": float(len(tried)),
            "transitions": sum(one.spent for one in tried),
        },
    }


def parse_experiment(mapping: dict[str, Any], source: str) -> Experiment[TaskConfig]:
    """A mapping of sections as an experiment; `source` is named in errors.

    Raises:
        ConfigError: see `load_experiment`.
    """
    task = mapping.get("task")
    if not isinstance(task, dict) or "family" not in task:
        raise ConfigError(f"{source}: required key 'task.family' is missing")
    try:
        family = family_class(task["family"])
    except ConfigError as error:
        raise ConfigError(f"{source}: {error}") from None
    if mapping.get("pretrained") is not None:
        mapping = _inherit(mapping, source)
    experiment = build(Experiment[family.config_class], mapping, source)  # type: ignore[name-defined]
    check_experiment(experiment, source)
    return experiment


def _inherit(mapping: dict[str, Any], source: str) -> dict[str, Any]:
    """The mapping with `pretrained` as an experiment, and with what that decides."""
    pretrained = mapping["pretrained"]
    if not isinstance(pretrained, dict):
        raise ConfigError(f"{source}: 'pretrained' must be the path of a config file, in a file")
    parsed = parse_experiment(pretrained, f"{source}: pretrained")
    if parsed.pretrained is not None:
        raise ConfigError(f"{source}: pretrained has a 'pretrained' of its own; name that one")
    inherited = parsed.model_dump(include={"methods", "variants", "sweep", "seeds", *TRAINING})
    return {**inherited, **mapping, "pretrained": parsed}
