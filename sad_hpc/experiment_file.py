"""Reading an experiment: defaults < YAML < overrides, and what only shows across its sections."""

import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sad_hpc.config import apply_overrides, build, differences, read_yaml, resolved
from sad_hpc.errors import ConfigError
from sad_hpc.experiment import TRAINING, Experiment
from sad_hpc.policy import policy_table
from sad_hpc.tasks import TabularFamily, TaskConfig
from sad_hpc.tasks.base import family_class

AUTO, TRUSTWORTHINESS = "auto", "trustworthiness"

MAX_BLOCKS = 20_000
"""HDF5 holds 36 KB a block in memory while it writes the view of all shards: 1 GB of rank 0."""

SPLIT = {"train_goals", "train_permutations", "split_seed"}
"""Keys of `task` that say which tasks are for training."""


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
    _check_rows(experiment, source)
    for row in experiment.rows:
        _check_row(experiment.of_row(row)[0], source)
    return experiment


def _check_rows(experiment: Experiment[TaskConfig], source: str) -> None:
    """What is evaluated must be trained."""
    rows, trained = experiment.rows, experiment.source
    unknown = [row for row in rows if rows[row] != trained.rows.get(row)]
    # Of methods themselves there is more to say, see below.
    if unknown and (trained.sweep or set(unknown) - set(experiment.methods)):
        raise ConfigError(
            f"{source}: rows {'; '.join(unknown)} are not {trained.name}'s, which trains "
            f"{'; '.join(trained.rows)}: leave variants and sweep to it"
        )


def _check_row(experiment: Experiment[TaskConfig], source: str) -> None:
    _check_data(experiment, source)
    if experiment.pretrained is None:
        _check_training(experiment, source)
    else:
        _check_pretrained(experiment, source)


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


def _check_pretrained(experiment: Experiment[TaskConfig], source: str) -> None:
    """The models of the other experiment must be usable, and must be what is said of them here."""
    trained = experiment.source
    for key in ("methods", "seeds"):
        if unknown := set(getattr(experiment, key)) - set(getattr(trained, key)):
            raise ConfigError(f"{source}: {key} {sorted(unknown)} are not among {trained.name}'s")
    for key in TRAINING:
        wanted, found = (resolved(getattr(each, key)) for each in (experiment, trained))
        if changed := differences(found, wanted, key):
            raise ConfigError(
                f"{source}: {trained.name} decides {key} ({'; '.join(changed)}); "
                f"set pretrained.{key} instead"
            )
    own, others = (family_class(e.task.family)(e.task) for e in (experiment, trained))
    for name in ("n_actions", "state_center", "state_scale", "image_size", "reward_scale"):
        if getattr(own, name) != getattr(others, name):
            raise ConfigError(
                f"{source}: the models of {trained.name} have {name} {getattr(others, name)}, "
                f"this task has {getattr(own, name)}"
            )
    if type(own) is type(others):
        _check_split(experiment, source)
    if experiment.task.horizon != trained.task.horizon:
        raise ConfigError(
            f"{source}: the models of {trained.name} have task.horizon={trained.task.horizon}, "
            f"not {experiment.task.horizon}"
        )


def _check_split(experiment: Experiment[TaskConfig], source: str) -> None:
    """Of one family, no task that a model was trained on may be among the test tasks."""
    task, trained = experiment.task.model_dump(), experiment.source.task.model_dump()
    for key in SPLIT & set(task):
        if task[key] != trained[key]:
            raise ConfigError(
                f"{source}: task.{key}={task[key]}, but {trained[key]} in {experiment.source.name}:"
                " its models may have been trained on this one's test tasks"
            )


def _check_data(experiment: Experiment[TaskConfig], source: str) -> None:
    """What only shows when task, data and evaluation are seen together."""
    family = family_class(experiment.task.family)(experiment.task)
    data, policy = experiment.data, experiment.data.behavior_policy
    if policy != "uniform" and len(policy) != family.n_actions:
        raise ConfigError(
            f"{source}: data.behavior_policy has {len(policy)} probabilities, but "
            f"{experiment.task.family} has {family.n_actions} actions"
        )
    try:
        policy_table(policy, family.n_actions)
    except ConfigError as error:
        raise ConfigError(f"{source}: {error}") from None
    if data.score == "best" and not family.sparse_reward:
        raise ConfigError(
            f"{source}: data.score=best is for sparse rewards: the luckiest roll-out of "
            f"{experiment.task.family} is not the best action's; use data.score=mean"
        )
    if data.source_steps and not isinstance(family, TabularFamily):
        raise ConfigError(f"{source}: data.source_steps is for tabular task families")
    if 0 < data.source_steps < experiment.task.horizon:
        raise ConfigError(
            f"{source}: data.source_steps={data.source_steps} is less than "
            f"task.horizon={experiment.task.horizon}"
        )
    for split in ("train", "test"):
        if family.n_tasks(split, data.tasks) < 1:
            raise ConfigError(
                f"{source}: data.tasks={data.tasks} leaves the {split} split empty; ask for more"
            )
    if (blocks := math.ceil(data.tasks / data.block_tasks)) > MAX_BLOCKS:
        enough = 2 ** math.ceil(math.log2(data.tasks / MAX_BLOCKS))
        raise ConfigError(
            f"{source}: data.tasks={data.tasks} in blocks of {data.block_tasks} are {blocks:,} "
            f"files, too many for the view of them all: set data.block_tasks={enough}"
        )
    n_test = family.n_tasks("test", data.tasks)
    if experiment.evaluate.tasks > n_test:
        raise ConfigError(
            f"{source}: evaluate.tasks={experiment.evaluate.tasks} exceeds the {n_test} test tasks"
        )


def _check_training(experiment: Experiment[TaskConfig], source: str) -> None:
    """The training tasks must fill a batch."""
    family = family_class(experiment.task.family)(experiment.task)
    n_train = family.n_tasks("train", experiment.data.tasks)
    if n_train - experiment.pretrain.holdout_tasks < experiment.pretrain.batch_size:
        raise ConfigError(
            f"{source}: {n_train} training tasks less pretrain.holdout_tasks="
            f"{experiment.pretrain.holdout_tasks} do not fill one batch of "
            f"pretrain.batch_size={experiment.pretrain.batch_size}"
        )
