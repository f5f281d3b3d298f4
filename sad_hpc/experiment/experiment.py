"""An experiment: the sections of a config file, one a stage, and the signature of each stage."""

import functools
import json
from typing import Any, Generic, Literal, TypeVar, cast

from pydantic import Field, SerializeAsAny, field_validator, model_validator

from sad_hpc.errors import ConfigError
from sad_hpc.experiment.config import (
    Section,
    apply_overrides,
    build,
    later,
    resolved,
    signature,
    transient,
)
from sad_hpc.experiment.methods import METHODS
from sad_hpc.experiment.rows import Variant, check_distinct, named_variant, sweep_variants
from sad_hpc.tasks import TaskConfig, make_family

TRUSTWORTHINESS = 0.85
"""The consensus of labels that `trust_horizon: auto` asks for, unless it is told another."""


class DataConfig(Section):
    """What `collect` makes: contexts and labels."""

    tasks: int = Field(ge=2)
    """Number of tasks (the paper's "# of environments"), training and test together."""
    seed: int = Field(0, ge=0)
    trust_horizon: int = Field(ge=1, le=10_000_000)
    """N: the length of a label roll-out (Algorithms 3, 5), or pulls per arm (Algorithm 2).

    In a file also `auto`: N and N_ep are chosen by random data alone, such that independent labels
    agree in a share `trustworthiness` of all query states (see `distill.choose`).
    """
    episodes_per_action: int = Field(1, ge=1, le=10**12)
    """N_ep of Theorem 2; 1 is the paper's algorithm."""
    score: Literal["mean", "best"] = later("mean")
    """Of an action's N_ep roll-outs: the mean of their discounted returns, or the best.

    `best` is for tasks whose steps are certain and rewards sparse: with enough roll-outs the label
    is an action of a shortest way, whatever the random policy's own values prefer.
    """
    discount: float = Field(0.9, gt=0, lt=1)
    """gamma of the label roll-outs' returns."""
    return_threshold: float = 1e-6
    """R of Algorithm 3; unused where rewards are sparse (Algorithm 5)."""
    tie_break: Literal["lowest", "random"] = "lowest"
    """Which of several equally good roll-outs names SAD's label; the oracle's is always random."""
    behavior_policy: Literal["uniform"] | list[float] = "uniform"
    """One fixed distribution over actions, for contexts, episodes and label roll-outs."""
    chosen: dict[str, float] | None = transient(None)
    """Of `trust_horizon: auto`, written by itself: consensus asked for and reached, rules that were
    tried, and the transitions that this took."""
    source_steps: int = later(0, ge=0, le=10**12)
    """Steps of Q-learning in every task, of whose history `episodes` are a sample; 0: they are
    roll-outs of the behavior policy."""
    block_tasks: int = Field(2048, ge=1)
    """Tasks in a block: the unit of sharding, of random streams and of resuming."""
    schedule: Literal["dynamic", "static"] = transient("dynamic")
    """How blocks are handed to MPI ranks; the data are the same."""


class ModelConfig(Section):
    """The transformer, the same for every method."""

    layers: int = Field(3, ge=1, le=1000)
    heads: int = Field(3, ge=1, le=1000)
    embedding: int = Field(32, ge=1, le=100_000)
    head_dim: int | None = Field(None, ge=1, le=10_000)
    """Width of a head; by default embedding / heads rounded up to a multiple of 8."""
    dropout: float = Field(0.1, ge=0, lt=1)
    """On embeddings and residual branches."""
    attention_dropout: float = Field(0.0, ge=0, lt=1)
    """Above 0 it switches off fused attention, which costs a factor of 4 at T = 500 on a CPU."""
    initialization: Literal["scaled", "gpt2"] = "scaled"
    """scaled: N(0, 1 / fan_in); gpt2: N(0, 0.02), too small for width 32."""


class PretrainConfig(Section):
    """The optimisation."""

    epochs: int = Field(ge=1)
    batch_size: int = Field(64, ge=1)
    """Global: contexts in a step, over all ranks."""
    learning_rate: float = Field(1e-3, gt=0)
    schedule: Literal["constant", "cosine"] = "constant"
    """cosine: the learning rate falls to 0 over the whole training, which ends its jitter."""
    weight_decay: float = Field(1e-4, ge=0)
    gradient_clipping: float = Field(1.0, ge=0)
    """Largest gradient norm; 0 switches it off."""
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    """auto: bf16 on a GPU, fp32 on a CPU."""
    zero_stage: Literal[0, 1, 2] = 0
    holdout_tasks: int = Field(1024, ge=1)
    """Training tasks that are kept out of training, to measure loss and label accuracy on."""
    checkpoint_minutes: float = transient(5.0, ge=0)
    """Time between checkpoints; one is also made at the end of every epoch."""
    log_seconds: float = transient(10.0, gt=0)
    """Time between progress lines in a log."""

    def check_ranks(self, ranks: int) -> None:
        """The global batch must divide over the ranks.

        Raises:
            ConfigError: it does not.
        """
        if self.batch_size % ranks:
            raise ConfigError(
                f"pretrain.batch_size={self.batch_size} does not divide over {ranks} ranks "
                "(cluster.pretrain.ranks): change one of them"
            )


class DITConfig(Section):
    """The Decision Importance Transformer's loss weight."""

    weight: float = Field(500.0, gt=0)
    """lambda."""
    discount: float = Field(0.99, gt=0, le=1)
    """gamma of the return-to-go."""


class EvaluateConfig(Section):
    """Offline and online evaluation on test tasks."""

    tasks: int = Field(200, ge=1)
    seed: int = Field(0, ge=0)
    online_episodes: int = Field(40, ge=1, le=100_000)
    headline_episodes: int = Field(10, ge=1)
    """The mean of the last so many online episodes is the number in the tables."""
    chunk_tasks: int = Field(100, ge=1)
    """Tasks that are evaluated and saved together, with random numbers of their own."""
    batch_size: int = transient(512, ge=1)
    """Sequences in one forward pass."""

    @model_validator(mode="after")
    def _check_episodes(self) -> "EvaluateConfig":
        if self.headline_episodes > self.online_episodes:
            raise ValueError(
                f"evaluate.headline_episodes={self.headline_episodes} exceeds "
                f"evaluate.online_episodes={self.online_episodes}"
            )
        return self


TaskT = TypeVar("TaskT", bound=TaskConfig)

TRAINING = ("model", "dit", "pretrain")
"""Sections that the experiment decides which trains the models."""


class Experiment(Section, Generic[TaskT]):
    """A whole config file."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")
    """Folder under runs/ and results/."""
    task: TaskT
    data: DataConfig
    methods: list[str] = Field(min_length=1)
    variants: dict[str, dict[str, Any]] = {}
    """Further rows of the tables: methods with other settings (see `variants`)."""
    sweep: dict[str, list[Any]] = {}
    """Values by dotted key: every combination is a row, instead of the methods themselves."""
    seeds: list[int] = Field([0, 1, 2, 3], min_length=1, max_length=1000)
    """Training seeds; each (method, seed) is one pretraining job and one array element."""
    model: ModelConfig = ModelConfig()
    dit: DITConfig = DITConfig()
    pretrain: PretrainConfig
    evaluate: EvaluateConfig = EvaluateConfig()
    pretrained: SerializeAsAny[Section] | None = None
    """The experiment whose models are evaluated here; None: this one trains its own.

    In a file it is the path of the other config, relative to this one; it decides methods, seeds,
    model and training.
    """

    @field_validator("methods")
    @classmethod
    def _check_methods(cls, methods: list[str]) -> list[str]:
        for method in methods:
            if method not in METHODS:
                raise ValueError(f"unknown method {method!r}; valid: {', '.join(METHODS)}")
        return _without_repeats(methods)

    @field_validator("seeds")
    @classmethod
    def _check_seeds(cls, seeds: list[int]) -> list[int]:
        if min(seeds) < 0:
            raise ValueError("seeds must be 0 or more")
        return _without_repeats(seeds)

    @model_validator(mode="after")
    def _check_rows(self) -> "Experiment[TaskT]":
        points = sweep_variants(self.sweep, self.methods) if self.sweep else {}
        check_distinct([*points, *self.variants])
        for row, variant in self.rows.items():
            _check_matters(row, variant)
        return self

    @property
    def source(self) -> "Experiment[Any]":
        """The experiment that trains the models: this one, or `pretrained`."""
        return cast("Experiment[Any]", self.pretrained or self)

    @functools.cached_property
    def rows(self) -> dict[str, Variant]:
        """What the tables compare, by name: methods or a sweep's points, and variants."""
        rows = {method: Variant(method, {}) for method in self.methods}
        if self.sweep:
            rows = sweep_variants(self.sweep, self.methods)
        return rows | {name: named_variant(name, each) for name, each in self.variants.items()}

    def __copy__(self) -> "Experiment[TaskT]":
        """Without its rows, which are others once a copy's sections have been replaced."""
        copy = super().__copy__()
        copy.__dict__.pop("rows", None)
        return copy

    @property
    def elements(self) -> list[tuple[str, int]]:
        """Every (row, seed), in the order of the evaluation array."""
        return [(row, seed) for row in self.rows for seed in self.seeds]

    def of_row(self, row: str) -> tuple["Experiment[Any]", str]:
        """The experiment that makes a row's models, and the row's method.

        Raises:
            ConfigError: the settings are impossible.
        """
        variant = self.rows.get(row)
        if variant is None:
            raise ConfigError(f"{self.name} has no row {row!r}; its rows: {'; '.join(self.rows)}")
        if not variant.values:
            return self, row
        if self.pretrained is not None:
            source, method = self.source.of_row(row)
            decided = ("methods", "variants", "sweep", *TRAINING)
            changed = {key: getattr(source, key) for key in decided}
            return self.model_copy(update={"pretrained": source, **changed}), method
        plain = self.model_dump(mode="json", exclude={"variants", "sweep"})
        if {"data.trust_horizon", "data.episodes_per_action"} & variant.values.keys():
            plain["data"]["chosen"] = None  # was of another N or N_ep
        overrides = [f"{key}={json.dumps(value)}" for key, value in variant.values.items()]
        mapping = apply_overrides({**plain, "methods": [variant.method]}, overrides)
        return build(type(self), mapping, row), variant.method

    def data_config(self) -> dict[str, Any]:
        """What decides the dataset."""
        return {"task": resolved(self.task), "data": resolved(self.data)}

    def data_signature(self) -> str:
        """Names the dataset's folder."""
        revision = make_family(self.task).data_revision
        return signature("collect", self.data_config(), revision=revision)

    def optimization(self, method: str) -> PretrainConfig:
        """The `pretrain` section as a method uses it.

        DIT's loss is lambda times as large as the others': under the same limit on the gradient's
        norm every step of it would be cut to the same length, whatever the returns in its batch.
        """
        limit = self.pretrain.gradient_clipping * (self.dit.weight if method == "DIT" else 1)
        return self.pretrain.model_copy(update={"gradient_clipping": limit})

    def pretrain_config(self, method: str, seed: int) -> dict[str, Any]:
        """What decides a trained model, besides the dataset."""
        config = {
            "method": method,
            "seed": seed,
            "model": resolved(self.model),
            "pretrain": resolved(self.optimization(method)),
        }
        # Only where it matters: what others do not have must not train them again.
        if method == "DIT":
            config["dit"] = resolved(self.dit)
        if (scale := make_family(self.task).reward_scale) != 1:
            config["reward_scale"] = scale
        return config

    def pretrain_signature(self, method: str, seed: int) -> str:
        """Names the folder of one trained model."""
        config = self.source.pretrain_config(method, seed)
        revision = make_family(self.source.task).model_revision
        return signature("pretrain", config, [self.source.data_signature()], revision)

    def evaluate_config(self, method: str, seed: int) -> dict[str, Any]:
        """What decides an evaluation, besides the trained model."""
        return {"method": method, "seed": seed, "evaluate": resolved(self.evaluate)}

    def evaluate_signature(self, method: str, seed: int) -> str:
        """Names the result file of one (method, seed)."""
        config = self.evaluate_config(method, seed)
        upstream = [self.pretrain_signature(method, seed)]
        if self.pretrained is not None:
            upstream.append(self.data_signature())
        return signature("evaluate", config, upstream)

    def aggregate_signature(self) -> str:
        """Names the state in which the tables include every (method, seed)."""
        made = {row: self.of_row(row) for row in self.rows}
        upstream = [
            experiment.evaluate_signature(method, seed)
            for experiment, method in made.values()
            for seed in self.seeds
        ]
        others = [row for row in made if row not in METHODS]
        config = {"name": self.name, **({"rows": others} if others else {})}
        return signature("aggregate", config, upstream)


SECTIONS: dict[str, type[Section]] = {
    "data": DataConfig,
    "model": ModelConfig,
    "dit": DITConfig,
    "pretrain": PretrainConfig,
}


def _check_matters(row: str, variant: Variant) -> None:
    """Settings that cannot change a result make no row."""
    for key in variant.values:
        section, _, name = key.partition(".")
        field = SECTIONS[section].model_fields.get(name)
        extra = field.json_schema_extra if field else None
        if isinstance(extra, dict) and extra.get("transient") and key != "data.chosen":
            raise ValueError(f"{row}: {key} cannot change a result")


def _without_repeats(values: list[Any]) -> list[Any]:
    if len(set(values)) < len(values):
        raise ValueError(f"repeats an entry: {values}")
    return values
