"""Checks across the sections of an experiment; `where` names its source in errors."""

import inspect
import math

from sad_hpc.errors import ConfigError
from sad_hpc.experiment.behavior_policy import policy_table
from sad_hpc.experiment.config import Role, differences, fields_of, resolved
from sad_hpc.experiment.experiment import Experiment
from sad_hpc.experiment.families import TaskConfig
from sad_hpc.experiment.methods import METHODS
from sad_hpc.experiment.sections import GPT2

MAX_BLOCKS = 20_000
"""Most blocks of a dataset.  While HDF5 writes the view of all shards it holds 36 KB a block in
memory, so rank 0 needs less than 1 GB."""

MAX_BLOCK = 2**30
"""Most transitions, or query states, of a block.  At this size a rank holds at least 8 GB."""


def check_experiment(experiment: Experiment[TaskConfig], where: str) -> None:
    """Check every row of the experiment's tables.

    Raises:
        ConfigError: a setting does not fit; the line names the key and the fix.
    """
    _check_rows(experiment, where)
    for row in experiment.by_row:
        _check_row(*experiment.of_row(row), where)
    _check_replicates(experiment, where)


def _check_replicates(experiment: Experiment[TaskConfig], where: str) -> None:
    """Check `seeds_vary`.

    Raises:
        ConfigError: the family has no split, or the models' seeds vary otherwise.
    """
    vary, trained = experiment.seeds_vary, experiment.source
    if "split" in vary and "split_seed" not in type(experiment.task).model_fields:
        raise ConfigError(
            f"{where}: seeds_vary has split, but {experiment.family.name} has no task.split_seed: "
            "remove it"
        )
    if set(vary) != set(trained.seeds_vary):
        raise ConfigError(
            f"{where}: seeds_vary={vary}, but {trained.name} has {trained.seeds_vary}: use the same"
        )


def _check_rows(experiment: Experiment[TaskConfig], where: str) -> None:
    """Refuse rows that the source experiment does not train, and claims about unknown rows."""
    rows, trained = experiment.by_row, experiment.source
    for name, row in rows.items():
        if row.replicates is not None and row.replicates > len(experiment.seeds):
            raise ConfigError(
                f"{where}: rows: {name}: replicates={row.replicates} exceeds the "
                f"{len(experiment.seeds)} seeds of the experiment"
            )
    for one, other in experiment.claims:
        if one == other or not {one, other} <= rows.keys():
            raise ConfigError(
                f"{where}: claims: give two different rows instead of {one!r} and {other!r}; "
                f"rows: {'; '.join(rows)}"
            )
    if unknown := [row for row in rows if rows[row] != trained.by_row.get(row)]:
        raise ConfigError(
            f"{where}: {trained.name} does not train the rows {'; '.join(unknown)}, only "
            f"{'; '.join(trained.by_row)}: remove `rows` here"
        )


def _check_row(experiment: Experiment[TaskConfig], method: str, where: str) -> None:
    _check_data(experiment, where)
    if experiment.evaluate.greedy_after_reward and not experiment.family.sparse_reward:
        raise ConfigError(
            f"{where}: evaluate.greedy_after_reward=true needs sparse rewards, which "
            f"{experiment.family.name} does not have; set it to false"
        )
    plays = experiment.evaluate.acting == "auto" and experiment.family.has_environment
    if plays and not experiment.data.has_known_tasks:
        raise ConfigError(
            f"{where}: evaluate.acting=auto plays training tasks, but the logged ones have no "
            "parameters: set it to given"
        )
    if experiment.pretrained is None:
        _check_training(experiment, method, where)
    else:
        _check_pretrained(experiment, where)


def _check_pretrained(experiment: Experiment[TaskConfig], where: str) -> None:
    """Check that the source experiment's models fit the task and the settings repeated here."""
    trained = experiment.source
    if unknown := set(experiment.seeds) - set(trained.seeds):
        raise ConfigError(f"{where}: {trained.name} does not train the seeds {sorted(unknown)}")
    for key in fields_of(type(trained), Role.TRAINING):
        wanted, found = (resolved(getattr(each, key)) for each in (experiment, trained))
        if changed := differences(found, wanted, key):
            raise ConfigError(
                f"{where}: {trained.name} decides {key} ({'; '.join(changed)}); "
                f"set pretrained.{key} instead"
            )
    own, others = experiment.family, trained.family
    for name in (
        "n_actions",
        "state_center",
        "state_scale",
        "image_shape",
        "reward_scale",
        "has_ends",
    ):
        if getattr(own, name) != getattr(others, name):
            raise ConfigError(
                f"{where}: the models of {trained.name} have {name} {getattr(others, name)}, "
                f"this task has {getattr(own, name)}"
            )
    if experiment.data.rounds > 1:
        raise ConfigError(
            f"{where}: data.rounds needs an experiment that trains its own models: set it to 1"
        )
    if type(own) is type(others):
        _check_split(experiment, where)
    if experiment.task.horizon != trained.task.horizon:
        raise ConfigError(
            f"{where}: the models of {trained.name} have task.horizon={trained.task.horizon}, "
            f"not {experiment.task.horizon}"
        )


def _check_split(experiment: Experiment[TaskConfig], where: str) -> None:
    """Refuse a split in which the test tasks may include training tasks of the models."""
    for key in fields_of(type(experiment.task), Role.TASK_SPLIT):
        own, trained = (getattr(each.task, key) for each in (experiment, experiment.source))
        if own != trained:
            raise ConfigError(
                f"{where}: task.{key}={own}, but {trained} in {experiment.source.name}, whose "
                f"models may have seen these test tasks: set task.{key}={trained}"
            )


def _check_data(experiment: Experiment[TaskConfig], where: str) -> None:
    """Check that the sections `task`, `data` and `evaluate` fit together."""
    family = experiment.family
    data, policy = experiment.data, experiment.data.behavior_policy
    if policy != "uniform" and len(policy) != family.n_actions:
        raise ConfigError(
            f"{where}: data.behavior_policy has {len(policy)} probabilities, but "
            f"{experiment.task.family} has {family.n_actions} actions"
        )
    try:
        policy_table(policy, family.n_actions)
        family.check_data(data)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None
    if data.score == "fastest" and not (family.sparse_reward and family.certain):
        raise ConfigError(
            f"{where}: data.score=fastest needs sparse rewards and deterministic steps, which "
            f"{experiment.task.family} does not have; use data.score=mean"
        )
    if data.refinements and family.components is None:
        raise ConfigError(
            f"{where}: data.refinements is for actions that are vectors of numbers, which "
            f"{experiment.task.family} does not have; use data.refinements=0"
        )
    if data.refinements and family.sparse_reward:
        raise ConfigError(
            f"{where}: data.refinements needs dense rewards, since the best of candidates without "
            "a reward are arbitrary; use data.refinements=0"
        )
    if 0 < data.q_learning_steps < experiment.task.horizon:
        raise ConfigError(
            f"{where}: data.q_learning_steps={data.q_learning_steps} is less than "
            f"task.horizon={experiment.task.horizon}"
        )
    for split in family.splits:
        if family.n_tasks(split, data.tasks) < 1:
            raise ConfigError(
                f"{where}: data.tasks={data.tasks} leaves the {split} split empty; increase it"
            )
    if (blocks := data.blocks(data.tasks)) > MAX_BLOCKS:
        enough = 2 ** math.ceil(math.log2(data.tasks / MAX_BLOCKS))
        raise ConfigError(
            f"{where}: data.tasks={data.tasks} in blocks of {data.block_tasks} are {blocks:,} "
            f"files, more than the limit of {MAX_BLOCKS:,}: set data.block_tasks={enough}"
        )
    for key, of_a_task, what in (
        ("task.horizon", experiment.task.horizon * data.shown_episodes, "transitions"),
        ("data.queries_per_task", data.queries_per_task, "query states"),
    ):
        if (held := min(data.tasks, data.block_tasks) * of_a_task) > MAX_BLOCK:
            raise ConfigError(
                f"{where}: data.block_tasks={data.block_tasks} of {key}={of_a_task} are {held:,} "
                f"{what}, too many for a rank's memory: lower one of them"
            )
    _check_shown(experiment, where)
    n_test = family.n_tasks("test", data.tasks)
    if experiment.evaluate.tasks > n_test and family.has_environment:
        raise ConfigError(
            f"{where}: evaluate.tasks={experiment.evaluate.tasks} exceeds the {n_test} test tasks"
        )


def _check_shown(experiment: Experiment[TaskConfig], where: str) -> None:
    """Refuse `evaluate.context` and `evaluate.memory` if the family has one kind of context."""
    if "episodes" in experiment.family.context_groups:
        return
    for key, usual in (("context", "transitions"), ("memory", "episode")):
        if (value := getattr(experiment.evaluate, key)) != usual:
            raise ConfigError(
                f"{where}: evaluate.{key}={value}, but {experiment.task.family} has only one kind "
                f"of context: set it to {usual}"
            )


def _check_training(experiment: Experiment[TaskConfig], method: str, where: str) -> None:
    """Check a training's labels, batch size and resampling.

    The family must have the method's labels, the training tasks must fill a batch, and repeated
    transitions must not pass for independent ones.
    """
    for key, found in experiment.extensions.items():
        if not (isinstance(found, type) or inspect.isfunction(found)):
            raise ConfigError(
                f"{where}: {key} is of type {type(found).__name__}: give a class or a function, "
                "whose module is part of the signature"
            )
    family = experiment.family
    group = METHODS[method].labels
    if group is not None and group.removeprefix("labels/") not in family.labels_of(experiment.data):
        lacking = f"optimal actions, which {experiment.task.family} does not know"
        if not (family.has_environment and experiment.data.has_known_tasks):
            lacking = "rollouts, but the logged tasks have no parameters"
        raise ConfigError(f"{where}: rows: {method} needs {lacking}: remove the row")
    if experiment.pretrain.validation_tasks:
        _check_validation(experiment, where)
    if experiment.pretrain.checkpoint_activations and experiment.model.architecture != GPT2:
        raise ConfigError(
            f"{where}: pretrain.checkpoint_activations is for model.architecture={GPT2}, not for "
            f"{experiment.model.architecture}: set it to false"
        )
    n_train = family.n_tasks("train", experiment.data.tasks) - experiment.validation_contexts
    if n_train - experiment.pretrain.holdout_tasks < experiment.pretrain.batch_size:
        raise ConfigError(
            f"{where}: {n_train} training tasks minus pretrain.holdout_tasks="
            f"{experiment.pretrain.holdout_tasks} do not fill one batch of "
            f"pretrain.batch_size={experiment.pretrain.batch_size}: increase data.tasks"
        )
    if experiment.pretrain.holdout_tasks > n_train // 2:
        raise ConfigError(
            f"{where}: pretrain.holdout_tasks={experiment.pretrain.holdout_tasks} keeps more than "
            f"half of {n_train} training tasks out of training: give it at most {n_train // 2}"
        )
    if experiment.pretrain.resample_probability:
        _check_repetitions(experiment, method, where)
    elif experiment.pretrain.max_reward_weight > 1:
        raise ConfigError(
            f"{where}: pretrain.max_reward_weight={experiment.pretrain.max_reward_weight:g} has no "
            "effect while pretrain.resample_probability is 0: set both, or neither"
        )


def _check_validation(experiment: Experiment[TaskConfig], where: str) -> None:
    """Check that validation tasks can be drawn, and that the dataset has contexts of them."""
    setting = f"pretrain.validation_tasks={experiment.pretrain.validation_tasks:g}"
    if not experiment.family.has_validation:
        raise ConfigError(
            f"{where}: {setting} is for tabular families, whose distinct tasks are known. "
            f"{experiment.family.name} draws each task anew: set it to 0"
        )
    if experiment.data.imported_contexts is not None:
        raise ConfigError(
            f"{where}: {setting} does not apply to imported contexts: set it to 0, or "
            "data.imported_contexts to null"
        )
    if not experiment.validation_contexts:
        raise ConfigError(
            f"{where}: {setting} leaves no task for validation: {experiment.family.name} has fewer "
            "than two training tasks, or data.tasks is too small to have each of them"
        )


def _check_repetitions(experiment: Experiment[TaskConfig], method: str, where: str) -> None:
    setting = f"pretrain.resample_probability={experiment.pretrain.resample_probability}"
    if not experiment.family.certain:
        raise ConfigError(
            f"{where}: {setting} would repeat the noise of {experiment.task.family} as if it were "
            "new: set it to 0"
        )
    if METHODS[method].labels is None and not METHODS[method].by_return:
        raise ConfigError(
            f"{where}: {setting}, but {method} learns from whole episodes in time order: set it "
            "only for rows of other methods"
        )
