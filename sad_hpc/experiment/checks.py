"""What must fit together across the sections of an experiment; `where` is named in errors."""

import math

from sad_hpc.errors import ConfigError
from sad_hpc.experiment.behavior_policy import policy_table
from sad_hpc.experiment.config import Role, differences, fields_of, resolved
from sad_hpc.experiment.experiment import Experiment
from sad_hpc.experiment.families import TaskConfig
from sad_hpc.experiment.methods import METHODS

MAX_BLOCKS = 20_000
"""HDF5 holds 36 KB a block in memory while it writes the view of all shards: 1 GB of rank 0."""

MAX_BLOCK = 2**30
"""Transitions in the contexts of a block, or its query states: a rank holds 8 GB and more then."""


def check_experiment(experiment: Experiment[TaskConfig], where: str) -> None:
    """Checks every row of the experiment's tables.

    Raises:
        ConfigError: one line with the key and the way out.
    """
    _check_rows(experiment, where)
    for row in experiment.by_row:
        _check_row(*experiment.of_row(row), where)


def _check_rows(experiment: Experiment[TaskConfig], where: str) -> None:
    """What is evaluated must be trained."""
    rows, trained = experiment.by_row, experiment.source
    if unknown := [row for row in rows if rows[row] != trained.by_row.get(row)]:
        raise ConfigError(
            f"{where}: rows {'; '.join(unknown)} are not {trained.name}'s, which trains "
            f"{'; '.join(trained.by_row)}: leave `rows` to it"
        )


def _check_row(experiment: Experiment[TaskConfig], method: str, where: str) -> None:
    _check_data(experiment, where)
    if experiment.evaluate.greedy_after_reward and not experiment.family.sparse_reward:
        raise ConfigError(
            f"{where}: evaluate.greedy_after_reward=true is for tasks with sparse rewards: "
            f"{experiment.family.name} has others; set it to drawn"
        )
    if experiment.pretrained is None:
        _check_training(experiment, method, where)
    else:
        _check_pretrained(experiment, where)


def _check_pretrained(experiment: Experiment[TaskConfig], where: str) -> None:
    """The models of the other experiment must be usable, and must be what is said of them here."""
    trained = experiment.source
    if unknown := set(experiment.seeds) - set(trained.seeds):
        raise ConfigError(f"{where}: seeds {sorted(unknown)} are not among {trained.name}'s")
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
        "image_size",
        "reward_scale",
        "has_ends",
    ):
        if getattr(own, name) != getattr(others, name):
            raise ConfigError(
                f"{where}: the models of {trained.name} have {name} {getattr(others, name)}, "
                f"this task has {getattr(own, name)}"
            )
    if experiment.data.rounds > 1:
        raise ConfigError(f"{where}: data.rounds is for an experiment that trains its own models")
    if type(own) is type(others):
        _check_split(experiment, where)
    if experiment.task.horizon != trained.task.horizon:
        raise ConfigError(
            f"{where}: the models of {trained.name} have task.horizon={trained.task.horizon}, "
            f"not {experiment.task.horizon}"
        )


def _check_split(experiment: Experiment[TaskConfig], where: str) -> None:
    """Of one family, no task that a model was trained on may be among the test tasks."""
    for key in fields_of(type(experiment.task), Role.TASK_SPLIT):
        own, trained = (getattr(each.task, key) for each in (experiment, experiment.source))
        if own != trained:
            raise ConfigError(
                f"{where}: task.{key}={own}, but {trained} in {experiment.source.name}: its models "
                "may have been trained on this one's test tasks"
            )


def _check_data(experiment: Experiment[TaskConfig], where: str) -> None:
    """What only shows when task, data and evaluation are seen together."""
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
            f"{where}: data.score=fastest is for sparse rewards and certain steps: the luckiest "
            f"rollout of {experiment.task.family} is not the best action's; use data.score=mean"
        )
    if 0 < data.q_learning_steps < experiment.task.horizon:
        raise ConfigError(
            f"{where}: data.q_learning_steps={data.q_learning_steps} is less than "
            f"task.horizon={experiment.task.horizon}"
        )
    for split in ("train", "test"):
        if family.n_tasks(split, data.tasks) < 1:
            raise ConfigError(
                f"{where}: data.tasks={data.tasks} leaves the {split} split empty; ask for more"
            )
    if (blocks := data.blocks(data.tasks)) > MAX_BLOCKS:
        enough = 2 ** math.ceil(math.log2(data.tasks / MAX_BLOCKS))
        raise ConfigError(
            f"{where}: data.tasks={data.tasks} in blocks of {data.block_tasks} are {blocks:,} "
            f"files, too many for the view of them all: set data.block_tasks={enough}"
        )
    for key, of_a_task, what in (
        ("task.horizon", experiment.task.horizon, "transitions"),
        ("data.queries_per_task", data.queries_per_task, "query states"),
    ):
        if (held := min(data.tasks, data.block_tasks) * of_a_task) > MAX_BLOCK:
            raise ConfigError(
                f"{where}: data.block_tasks={data.block_tasks} of {key}={of_a_task} are {held:,} "
                f"{what}, too many for a rank's memory: lower one of them"
            )
    _check_shown(experiment, where)
    n_test = family.n_tasks("test", data.tasks)
    if experiment.evaluate.tasks > n_test:
        raise ConfigError(
            f"{where}: evaluate.tasks={experiment.evaluate.tasks} exceeds the {n_test} test tasks"
        )


def _check_shown(experiment: Experiment[TaskConfig], where: str) -> None:
    """Where rollouts are no different from other contexts, nothing else can be shown."""
    if "episodes" in experiment.family.context_groups:
        return
    for key, usual in (("context", "transitions"), ("memory", "episode")):
        if (value := getattr(experiment.evaluate, key)) != usual:
            raise ConfigError(
                f"{where}: evaluate.{key}={value}, but {experiment.task.family} has one kind of "
                f"context only: leave it at {usual}"
            )


def _check_training(experiment: Experiment[TaskConfig], method: str, where: str) -> None:
    """Labels must be there, the training tasks fill a batch, and repetitions tell nothing new."""
    family = experiment.family
    group = METHODS[method].labels
    if group is not None and group.removeprefix("labels/") not in family.label_groups:
        raise ConfigError(
            f"{where}: rows: {method} needs optimal actions, which {experiment.task.family} "
            "does not know: leave it out"
        )
    n_train = family.n_tasks("train", experiment.data.tasks)
    if n_train - experiment.pretrain.holdout_tasks < experiment.pretrain.batch_size:
        raise ConfigError(
            f"{where}: {n_train} training tasks less pretrain.holdout_tasks="
            f"{experiment.pretrain.holdout_tasks} do not fill one batch of "
            f"pretrain.batch_size={experiment.pretrain.batch_size}"
        )
    if experiment.pretrain.resample_probability:
        _check_repetitions(experiment, method, where)
    elif experiment.pretrain.max_reward_weight > 1:
        raise ConfigError(
            f"{where}: pretrain.max_reward_weight={experiment.pretrain.max_reward_weight:g} does "
            "nothing where pretrain.resample_probability is 0: set both, or neither"
        )


def _check_repetitions(experiment: Experiment[TaskConfig], method: str, where: str) -> None:
    setting = f"pretrain.resample_probability={experiment.pretrain.resample_probability}"
    if not experiment.family.certain:
        raise ConfigError(
            f"{where}: {setting} would show the noise of {experiment.task.family} again as "
            "if it were new: leave it 0"
        )
    if METHODS[method].labels is None:
        raise ConfigError(
            f"{where}: {setting}, but {method} learns from whole episodes in time order: give it "
            "to rows of other methods, as in a recipe for SAD+"
        )
