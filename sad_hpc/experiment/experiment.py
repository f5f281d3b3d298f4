"""An experiment: a whole config file, the rows of its tables, and the signature of each stage."""

import functools
import operator
from typing import Annotated, Any, Generic, Literal, TypeVar, cast

from pydantic import Field, SerializeAsAny, field_validator, model_validator

from sad_hpc.errors import ConfigError
from sad_hpc.experiment.config import (
    Role,
    Section,
    build,
    fields_of,
    resolved,
    signature,
    with_role,
    with_values,
)
from sad_hpc.experiment.families import TaskConfig, family_of
from sad_hpc.experiment.installed import BUILT_IN, installed
from sad_hpc.experiment.methods import METHODS
from sad_hpc.experiment.rows import MAX_NAME, Row, RowConfig, rows_of
from sad_hpc.experiment.sections import (
    DataConfig,
    DITConfig,
    EvaluateConfig,
    ModelConfig,
    PretrainConfig,
)
from sad_hpc.user_code import code_digests

TaskT = TypeVar("TaskT", bound=TaskConfig)

Element = tuple[str, int]
"""A row and a seed."""


class Experiment(Section, Generic[TaskT]):
    """A whole config file."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$", max_length=MAX_NAME)
    """Name of the folders under runs/ and results/."""
    question: str = with_role(Role.TRANSIENT, "")
    """The question that the experiment answers: one sentence for its page and the index."""
    task: TaskT
    data: DataConfig
    rows: list[RowConfig] = Field(min_length=1)
    """The rows of the tables: methods, methods with settings, grids (see `experiment.rows`)."""
    recipes: dict[str, dict[str, Any]] = {}
    """Named settings, by dotted key, that rows refer to with `use`."""
    claims: list[Annotated[list[str], Field(min_length=2, max_length=2)]] = with_role(
        Role.TRANSIENT, []
    )
    """Pairs of rows of which the first is claimed to be better.  Tables test these differences,
    with Holm's correction over all of them.  Without any, they compare every row of SAD with its
    oracle, and SAD and SAD+ with the baselines."""
    seeds: list[int] = Field([0, 1, 2, 3], min_length=1, max_length=1000)
    """Seeds of the replicates.  Each (row, seed) is an element: one training of the array job."""
    seeds_vary: list[Literal["training", "data", "split"]] = ["training"]
    """Parts that a seed draws anew: the training (always), the dataset (`data.seed`), and the split
    of tasks (`task.split_seed`).  The paper's seeds vary the training alone."""
    model: ModelConfig = with_role(Role.TRAINING, ModelConfig())
    dit: DITConfig = with_role(Role.TRAINING, DITConfig())
    pretrain: PretrainConfig = with_role(Role.TRAINING)
    evaluate: EvaluateConfig = EvaluateConfig()
    pretrained: SerializeAsAny[Section] | None = None
    """The experiment whose models are evaluated here; None if this experiment trains its own.

    A file gives the path of the other config, relative to itself.  The other config decides rows,
    seeds, model and training.
    """

    @field_validator("seeds")
    @classmethod
    def _check_seeds(cls, seeds: list[int]) -> list[int]:
        if min(seeds) < 0:
            raise ValueError("seeds must be 0 or more")
        return _without_repeats(seeds)

    @field_validator("seeds_vary")
    @classmethod
    def _check_seeds_vary(cls, parts: list[str]) -> list[str]:
        if "training" not in parts:
            raise ValueError("seeds_vary must contain training")
        return _without_repeats(parts)

    @model_validator(mode="after")
    def _check_rows(self) -> "Experiment[TaskT]":
        for name, row in self.by_row.items():
            _check_settings(name, row)
        return self

    @property
    def source(self) -> "Experiment[Any]":
        """The experiment that trains the models: `pretrained`, or this one without it."""
        return cast("Experiment[Any]", self.pretrained or self)

    @property
    def seeds_share_data(self) -> bool:
        """True if all seeds have the same dataset."""
        return not {"data", "split"} & set(self.seeds_vary)

    @property
    def family(self) -> Any:
        """The task family, a `sad_hpc.tasks.base.TaskFamily`; see `tasks.base.make_family`."""
        return family_of(self.task)

    @property
    def validation_contexts(self) -> int:
        """Number of tasks of the dataset that are for validation."""
        share, family = self.pretrain.validation_tasks, self.family
        if not share:
            return 0
        count: int = family.n_validation(share, family.n_tasks("train", self.data.tasks))
        return count

    @property
    def training_steps(self) -> int:
        """Number of steps of a training.

        Tasks without parameters are held out as a whole, so that there may be fewer.
        """
        tasks = self.family.n_tasks("train", self.data.tasks) - self.validation_contexts
        return self.pretrain.epochs * self.pretrain.batches(tasks - self.pretrain.holdout_tasks)

    def context_length(self, method: str) -> int:
        """Return the number of transitions in the contexts of a method's dataset."""
        own = METHODS[method].context == "episodes"
        return self.task.horizon * (self.data.shown_episodes if own else 1)

    @functools.cached_property
    def by_row(self) -> dict[str, Row]:
        """The rows of the tables by name, in their order."""
        return rows_of(self.rows, self.recipes)

    @property
    def elements(self) -> list[Element]:
        """Every (row, seed), in the order of the evaluation array."""
        return [
            (name, seed)
            for name, row in self.by_row.items()
            for seed in self.seeds[: row.replicates]
        ]

    def of_row(self, row: str) -> tuple["Experiment[Any]", str]:
        """Return the experiment that trains a row's models, and the row's method.

        Raises:
            ConfigError: the row is unknown, or its settings are invalid.
        """
        found = self.by_row.get(row)
        if found is None:
            raise ConfigError(f"{self.name} has no row {row!r}; its rows: {'; '.join(self.by_row)}")
        if not found.settings:
            return self, found.method
        if self.pretrained is not None:
            source, method = self.source.of_row(row)
            decided = ("rows", "recipes", *fields_of(type(self), Role.TRAINING))
            changed = {key: getattr(source, key) for key in decided}
            # This experiment's evaluation settings decide the contexts of the trained models.
            shown = {
                key.removeprefix("evaluate."): value
                for key, value in found.settings.items()
                if key.startswith("evaluate.")
            }
            evaluate = {**self.evaluate.model_dump(), **shown}
            changed["evaluate"] = build(EvaluateConfig, evaluate, f"{row}: evaluate")
            return self.model_copy(update={"pretrained": source, **changed}), method
        plain = {**self.model_dump(mode="json", exclude={"recipes"}), "rows": [found.method]}
        return build(type(self), with_values(plain, found.settings), row), found.method

    def of_element(self, row: str, seed: int) -> tuple["Experiment[Any]", str]:
        """Return the experiment that trains one (row, seed), and the row's method.

        Raises:
            ConfigError: see `of_row`.
        """
        own, method = self.of_row(row)
        return own.replicate(seed), method

    def replicate(self, seed: int) -> "Experiment[TaskT]":
        """Return the experiment with the data and the split of one seed; see `seeds_vary`."""
        changed: dict[str, Any] = {}
        if "data" in self.seeds_vary:
            changed["data"] = self.data.model_copy(update={"seed": seed})
        if "split" in self.seeds_vary:
            changed["task"] = self.task.model_copy(update={"split_seed": seed})
        if self.pretrained is not None:
            changed["pretrained"] = self.source.replicate(seed)
        return self.model_copy(update=changed) if changed else self

    @property
    def round_before(self) -> "Experiment[Any] | None":
        """The experiment that trains the incumbent, the SAD model of the label rollouts.

        None if the rollouts follow the behavior policy.  Its only seed is that of the data, so
        that all models have the same dataset.
        """
        if self.data.rounds == 1:
            return None
        alone = {"rows": [RowConfig(method="SAD")], "recipes": {}, "seeds_vary": ["training"]}
        data = self.data.in_round(self.data.rounds - 1)
        return self.model_copy(update={**alone, "seeds": [data.seed], "data": data})

    def data_config(self) -> dict[str, Any]:
        """Return the settings that decide the dataset."""
        data = resolved(self.data)
        if not self.family.uses_return_threshold:
            data["return_threshold"] = 1e-6  # as in datasets from before null was the default
        if self.data.rounds == 1:  # keys that are not used have no place in signatures
            del data["round_temperature"], data["own_contexts"]
        if not self.data.q_learning_steps:
            del data["history_episodes"]
        return {"task": resolved(self.task), "data": data}

    def data_signature(self) -> str:
        """Return the signature in the name of the dataset's folder."""
        # Revisions only increase, so every change changes their sum.  Candidates of later rounds
        # have been drawn from the incumbent, too, since 1, and near ties keep its vector since 2.
        from_incumbent = 2 * (self.data.rounds > 1 and self.family.components is not None)
        revision = self.family.data_revision + self.data.revision + from_incumbent
        before = self.round_before
        upstream = (
            [before.pretrain_signature("SAD", seed) for seed in before.seeds] if before else []
        )
        return signature("collect", self.data_config(), [*upstream, *self.family.code], revision)

    def optimization(self, method: str) -> PretrainConfig:
        """Return the `pretrain` section as a method uses it.

        DIT's loss is lambda times as large as the others'.  Its limit on the gradient norm is also
        lambda times as large; otherwise every step would be clipped to the same length.
        """
        key = METHODS[method].loss_scale
        scale = operator.attrgetter(key)(self) if key else 1
        limit = self.pretrain.gradient_clipping * scale
        return self.pretrain.model_copy(update={"gradient_clipping": limit})

    def pretrain_config(self, method: str, seed: int) -> dict[str, Any]:
        """Return the settings that decide a trained model, apart from the dataset."""
        return {
            "method": method,
            "seed": seed,
            "model": resolved(self.model),
            "pretrain": resolved(self.optimization(method)),
            "reward_scale": self.family.reward_scale,
            # Only the sections that the method uses: others must not change its signature.
            **{name: resolved(getattr(self, name)) for name in METHODS[method].sections},
        }

    def pretrain_signature(self, method: str, seed: int) -> str:
        """Return the signature in the name of a trained model's folder."""
        config = self.source.pretrain_config(method, seed)
        family = self.source.family
        # See data_signature.  A question has held the components before it since the 1, and tasks
        # without parameters have been held out as a whole.
        in_turn = (family.components or 1) > 1
        whole_tasks = not self.source.data.has_known_tasks
        revision = family.model_revision + METHODS[method].revision + in_turn + whole_tasks
        upstream = [self.source.data_signature(), *code_digests(self.source.extensions.values())]
        return signature("pretrain", config, upstream, revision)

    @property
    def extensions(self) -> dict[str, Any]:
        """The model and the loss of other packages, by their config keys.

        Raises:
            ConfigError: see `installed`.
        """
        chosen = {
            "model.architecture": self.model.architecture,
            "pretrain.loss": self.pretrain.loss,
        }
        return {
            key: installed(key, name) for key, name in chosen.items() if name not in BUILT_IN[key]
        }

    def evaluate_config(self, method: str, seed: int) -> dict[str, Any]:
        """Return the settings that decide an evaluation, apart from the trained model."""
        return {"method": method, "seed": seed, "evaluate": resolved(self.evaluate)}

    def evaluate_signature(self, method: str, seed: int) -> str:
        """Return the signature in the name of an evaluation's folder."""
        config = self.evaluate_config(method, seed)
        upstream = [self.pretrain_signature(method, seed)]
        if self.pretrained is not None:
            upstream.append(self.data_signature())
        return signature("evaluate", config, upstream, self.evaluate.revision)

    def aggregate_signature(self) -> str:
        """Return the signature of the tables that include every element."""
        upstream = []
        for row, seed in self.elements:
            own, method = self.of_element(row, seed)
            upstream.append(own.evaluate_signature(method, seed))
        return signature("aggregate", {"name": self.name, "rows": list(self.by_row)}, upstream)


def _check_settings(name: str, row: Row) -> None:
    """Refuse settings that must not differ between rows, or that cannot change a result.

    Rows compare only if they share the test tasks and the measured quantity.  With another number
    of tasks the first test tasks stay the same; for bandits with less than one block of tasks the
    noise in the contexts changes.  Rows that differ only in `evaluate` share their weights.

    Raises:
        ValueError: see above.
    """
    sections = fields_of(Experiment, Role.TRAINING)
    parts = {
        "data": fields_of(DataConfig, Role.ROW_SETTING),
        "evaluate": fields_of(EvaluateConfig, Role.ROW_SETTING),
    }
    unable = [f"pretrain.{word}" for word in fields_of(PretrainConfig, Role.TRANSIENT)]
    for key in row.settings:
        section, _, word = key.partition(".")
        if not word or not (section in sections or word in parts.get(section, ())):
            valid = "; ".join(f"of {name}: {', '.join(words)}" for name, words in parts.items())
            raise ValueError(
                f"{name}: {key!r} cannot differ within a table; valid: all of "
                f"{', '.join(sections)}; {valid}"
            )
        if key in unable:
            raise ValueError(f"{name}: {key} cannot change a result")


def _without_repeats(values: list[Any]) -> list[Any]:
    if len(set(values)) < len(values):
        raise ValueError(f"repeats an entry: {values}")
    return values
