"""Reading an experiment: defaults < YAML < overrides, and `trust_horizon: auto` as numbers."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sad_hpc.errors import ConfigError
from sad_hpc.experiment.checks import check_experiment
from sad_hpc.experiment.config import apply_overrides, build, read_yaml
from sad_hpc.experiment.experiment import TRAINING, TRUSTWORTHINESS, Experiment
from sad_hpc.tasks import TaskConfig, make_family
from sad_hpc.tasks.base import family_class

if TYPE_CHECKING:
    from sad_hpc.theory.choose import Candidate

AUTO, ASKED = "auto", "trustworthiness"


def load_experiment(path: Path, overrides: Sequence[str] = ()) -> Experiment[TaskConfig]:
    """Reads a config file: defaults < YAML < `key.sub=value` overrides.

    `pretrained: FILE` stands for that file's content, so that overrides reach into it, and
    `data.trust_horizon: auto` for the N and N_ep that random data call for.

    Raises:
        ConfigError: one line with the file, the key and the valid choices.
    """
    mapping, source = _read(path, overrides)
    return parse_experiment(_with_horizons(mapping, source), source)


def horizon_question(path: Path, overrides: Sequence[str] = ()) -> "HorizonQuestion":
    """What `data.trust_horizon: auto` asks for a config, whose own N does not matter.

    Raises:
        ConfigError: see `load_experiment`.
    """
    mapping, source = _read(path, overrides)
    data = mapping.get("data")
    plain = {key: value for key, value in mapping.items() if key not in ("variants", "sweep")}
    plain = _with_horizons({**plain, "data": {}}, source)  # of `pretrained`
    return _question(plain, data if isinstance(data, dict) else {}, source)


@dataclass(frozen=True)
class HorizonQuestion:
    """Which N and N_ep shall be chosen, for which consensus."""

    experiment: Experiment[TaskConfig]
    """Everything else about labels."""
    asked: float
    """The consensus, in (0, 1)."""
    episodes: int | None
    """N_ep where it is given."""

    def candidates(self) -> list["Candidate"]:
        """The rules that are tried."""
        from sad_hpc.theory import choose  # compiled kernels

        counts = choose.EPISODES if self.episodes is None else (self.episodes,)
        family = make_family(self.experiment.task)
        return choose.candidates(family, self.experiment.data, self.asked, counts)


def _read(path: Path, overrides: Sequence[str]) -> tuple[dict[str, Any], str]:
    """The sections as they are written, and what to call them in errors."""
    mapping = read_yaml(path)
    if isinstance(mapping.get("pretrained"), str):
        mapping["pretrained"] = read_yaml(path.parent / mapping["pretrained"])
    return apply_overrides(mapping, overrides), " ".join([str(path), *overrides])


def _with_horizons(mapping: dict[str, Any], source: str) -> dict[str, Any]:
    """The mapping with numbers for every `auto`, so that all that follows sees numbers alone."""
    found = dict(mapping)
    if isinstance(found.get("pretrained"), dict):
        found["pretrained"] = _with_horizons(found["pretrained"], source)
    plain = {key: value for key, value in found.items() if key not in ("variants", "sweep")}
    data, variants = found.get("data"), found.get("variants")
    if isinstance(data, dict) and ASKED in data and not _asks(data, variants):
        _say_no_effect(source)
    if isinstance(data, dict):
        found["data"] = _data_with_horizon(plain, data, source)
        plain["data"] = found["data"]
    if isinstance(data, dict) and isinstance(variants, dict):
        asked = {ASKED: data[ASKED]} if ASKED in data else {}
        found["variants"] = {
            name: _settings_with_horizon(plain, settings, f"{source}: {name}", asked)
            for name, settings in variants.items()
        }
    return found


def _asks(data: dict[str, Any], variants: Any) -> bool:
    """Whether `auto` uses the trustworthiness of the `data` section, there or in a variant."""
    others = variants.values() if isinstance(variants, dict) else ()
    asked = [each.get("data.trust_horizon") for each in others
             if isinstance(each, dict) and f"data.{ASKED}" not in each]  # fmt: skip
    return AUTO in (data.get("trust_horizon"), *asked)


def _say_no_effect(source: str) -> None:
    print(f"{source}: no N is auto: data.trustworthiness has no effect", file=sys.stderr)


def _settings_with_horizon(
    plain: dict[str, Any], settings: Any, source: str, asked: dict[str, Any]
) -> Any:
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
    if own.get("trust_horizon") == AUTO:
        own = asked | own
    elif ASKED in own:
        _say_no_effect(source)
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
    _asked(data, source)
    rest = {key: value for key, value in data.items() if key != ASKED}
    if data.get("trust_horizon") != AUTO:
        return rest if "trust_horizon" in data else data
    return {**rest, **_chosen_rule(_question(plain, {**(base or {}), **data}, source), source)}


def _question(plain: dict[str, Any], data: dict[str, Any], source: str) -> HorizonQuestion:
    """What `auto` asks of a whole `data` section, whose own N_ep counts if its N is `auto`."""
    rest = {key: value for key, value in data.items() if key != ASKED}
    experiment = parse_experiment({**plain, "data": {**rest, "trust_horizon": 1}}, source)
    given = data.get("episodes_per_action") if data.get("trust_horizon") == AUTO else None
    return HorizonQuestion(experiment, _asked(data, source), given)


def _asked(data: dict[str, Any], source: str) -> float:
    """The consensus that a `data` section asks for."""
    asked = data.get(ASKED, TRUSTWORTHINESS)
    if not isinstance(asked, float) or not 0 < asked < 1:
        raise ConfigError(
            f"{source}: data.trustworthiness must be a number between 0 and 1, not {asked!r}"
        )
    return asked


def _chosen_rule(question: HorizonQuestion, source: str) -> dict[str, Any]:
    """N, N_ep (unless given) and what speaks for them, which is also said in a line."""
    from sad_hpc.theory import choose  # compiled kernels

    tried, asked = question.candidates(), question.asked
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
