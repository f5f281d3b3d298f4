"""The sections of a config file that all experiments share."""

import math
from typing import Annotated, Literal

from pydantic import Field, model_validator

from sad_hpc.errors import ConfigError
from sad_hpc.experiment.config import Role, Section, with_role
from sad_hpc.experiment.per_round import PerRound, up_to

GPT2, CROSS_ENTROPY = "gpt2", "cross_entropy"
"""The paper's model and loss."""

PER_ROUND = ("trust_horizon", "episodes_per_action", "discount")
"""Keys of `data` that may be lists with a value for each round."""

LOGS = "logs-"
"""Prefix of the names of imported contexts whose tasks have no parameters."""

LATER_ROW_SETTING = Role.ROW_SETTING | Role.OMIT_DEFAULT
"""The role of keys of `data` that are younger than some datasets."""


class DataConfig(Section):
    """The dataset that `collect` makes: contexts and labels."""

    tasks: int = with_role(Role.ROW_SETTING, ge=2)
    """Number of tasks (the paper's "# of environments"), training and test together."""
    seed: int = Field(0, ge=0)
    queries_per_task: int = with_role(Role.ROW_SETTING, 1, ge=1, le=100_000)
    """K: the number of query states a task, drawn independently, each with a label.  The paper
    has 1."""
    trust_horizon: PerRound[Annotated[int, Field(ge=1, le=10_000_000)]] = with_role(
        Role.ROW_SETTING
    )
    """N: the length of a label rollout (Algorithms 3, 5), or pulls per arm (Algorithm 2)."""
    continuation: float = with_role(LATER_ROW_SETTING, 1.0, gt=0, le=1)
    """Sparse rewards: the chance that a query state's trust horizon has another step.  Below 1 each
    query state draws its own, of `trust_horizon` at most, and those near the reward are labelled
    more often.  The paper has one trust horizon for all."""
    episodes_per_action: PerRound[Annotated[int, Field(ge=1, le=10**12)]] = with_role(
        Role.ROW_SETTING, 1
    )
    """N_ep of Theorem 2: rollouts an action.  The paper's algorithm has 1."""
    score: Literal["mean", "fastest"] = with_role(Role.ROW_SETTING, "mean")
    """The score of an action's N_ep rollouts: the mean of their discounted returns, or the return
    of the fastest one.

    `fastest` needs deterministic steps and sparse rewards.  With enough rollouts the label is then
    the first action of a shortest path, whichever action has the best value under the behavior
    policy.
    """
    discount: PerRound[Annotated[float, Field(gt=0, lt=1)]] = with_role(Role.ROW_SETTING, 0.9)
    """gamma: the discount in the returns of label rollouts."""
    return_threshold: float | None = with_role(Role.ROW_SETTING, None)
    """R of Algorithm 3: the least return of a query state's best action.  null accepts every query
    state.  Bandits and families with sparse rewards (Algorithm 5) do not use it."""
    candidates: int = with_role(Role.ROW_SETTING, 32, ge=2, le=100_000)
    """Vector actions: the number of first actions that a label is chosen from, drawn by the
    behavior policy; in later rounds half of them by the incumbent.  Discrete actions are all
    tried."""
    refinements: int = with_role(LATER_ROW_SETTING, 0, ge=0, le=100)
    """Vector actions: the number of times that the candidates are drawn again around the best
    quarter of them (cross-entropy method).  A label then is the mean of the last quarter."""
    common_actions: bool = with_role(LATER_ROW_SETTING, False)
    """True if the i-th rollouts of all first actions take the same random actions afterwards
    (common random numbers).  The law of each score is that of independent rollouts.  Rollouts that
    follow an incumbent do not use it."""
    tie_break: Literal["lowest", "random"] = with_role(Role.ROW_SETTING, "lowest")
    """SAD's label among equally good actions.  From the second round on, the incumbent's action has
    precedence."""
    oracle_tie_break: Literal["random", "lowest"] = with_role(LATER_ROW_SETTING, "random")
    """The oracle's label among optimal actions.  With `lowest` it follows one specific policy, as
    in the public code of DPT: in rooms it moves along x first."""
    oracle_error: float = with_role(LATER_ROW_SETTING, 0.0, ge=0, le=1)
    """Probability that the oracle's label is a uniform draw among suboptimal actions instead."""
    rounds: int = with_role(Role.ROW_SETTING, 1, ge=1, le=10)
    """Rounds of distillation.  In each further round the label rollouts follow the incumbent, the
    SAD model that was trained on the labels of the round before, instead of the behavior policy.
    The keys in PER_ROUND may be lists with a value for each round."""
    round_temperature: float = with_role(Role.ROW_SETTING, 0.0, ge=0, le=1e3)
    """Temperature of the incumbent's actions in label rollouts; 0: its likeliest action.  Only with
    several rounds."""
    own_contexts: float = with_role(Role.ROW_SETTING, 0.5, ge=0, le=1)
    """Share of the training contexts that are episodes of the incumbent's online play in the task
    (see `distill.incumbent`).  Only with several rounds."""
    behavior_policy: Literal["uniform"] | list[float] = "uniform"
    """The distribution over actions that collects contexts, episodes and label rollouts."""
    context_policy: Literal["behavior", "drawn", "dpt"] = with_role(Role.ROW_SETTING, "behavior")
    """The policy of bandits' contexts: the behavior policy; `drawn`, a random one drawn for each
    training task; or `dpt`, one drawn for each task, of test, too, as in the public code of DPT
    (see `distill.bandits`).  Labels always use the behavior policy."""
    q_learning_steps: int = with_role(Role.ROW_SETTING, 0, ge=0, le=10**12)
    """Steps of Q-learning in every task; `episodes` are then `history_episodes` of its episodes.
    If 0, `episodes` is one rollout of the behavior policy."""
    history_episodes: int = with_role(Role.ROW_SETTING, 4, ge=1, le=1000)
    """Episodes of a Q-learner, of increasing ages, in a context of AD.  Only with
    `q_learning_steps`."""
    imported_contexts: str | None = with_role(
        Role.ROW_SETTING, None, pattern="^(minari|logs)-[0-9a-f]{12}$"
    )
    """The name that `sad-hpc import` prints for training tasks and contexts from logged episodes;
    `logs-...` are those of tasks without parameters.  null: training tasks and contexts are
    drawn."""
    block_tasks: int = Field(2048, ge=1)
    """Tasks in a block, the unit of sharding, of random streams and of resuming."""
    schedule: Literal["dynamic", "static"] = with_role(Role.TRANSIENT, "dynamic")
    """The assignment of blocks to MPI ranks; it does not change the data."""

    def blocks(self, n_tasks: int) -> int:
        """Return the number of blocks for `n_tasks` tasks; the last block may be smaller."""
        return math.ceil(n_tasks / self.block_tasks)

    def in_round(self, number: int) -> "DataConfig":
        """Return the settings of an earlier round's dataset; `number` counts from 1."""
        cut = {key: up_to(getattr(self, key), number) for key in PER_ROUND}
        return self.model_copy(update={"rounds": number, **cut})

    @model_validator(mode="after")
    def _check_rounds(self) -> "DataConfig":
        for key in PER_ROUND:
            value = getattr(self, key)
            if isinstance(value, list) and len(value) != self.rounds:
                raise ValueError(
                    f"data.{key} has {len(value)} values, but data.rounds={self.rounds}: give one "
                    "for each round"
                )
        return self

    def draws_policies(self, split: str) -> bool:
        """Return whether each of a split's contexts has a random policy of its own."""
        return self.context_policy == "dpt" or (self.context_policy == "drawn" and split == "train")

    @property
    def has_known_tasks(self) -> bool:
        """True unless the training tasks are known by logged episodes alone."""
        return self.imported_contexts is None or not self.imported_contexts.startswith(LOGS)

    @property
    def has_known_contexts(self) -> bool:
        """True if the distribution of contexts is known: not that of logs or of own play."""
        own_play = self.rounds > 1 and self.own_contexts > 0
        return self.imported_contexts is None and not own_play

    @property
    def revision(self) -> int:
        """The revision of these settings in the signature; a new one invalidates old datasets."""
        return 2 if self.q_learning_steps else 0

    @property
    def shown_episodes(self) -> int:
        """Number of episodes of T steps in `episodes`."""
        return self.history_episodes if self.q_learning_steps else 1


class ModelConfig(Section):
    """The model, the same for every method."""

    architecture: str = with_role(Role.OMIT_DEFAULT, GPT2)
    """`gpt2`, or the name of an entry point of the group `sad_hpc.models`, which decides what the
    other keys mean for it."""
    layers: int = Field(3, ge=1, le=1000)
    heads: int = Field(3, ge=1, le=1000)
    embedding: int = Field(32, ge=1, le=100_000)
    head_dim: int | None = Field(None, ge=1, le=10_000)
    """Width of a head.  null: embedding / heads rounded up to a multiple of 8."""
    dropout: float = Field(0.1, ge=0, lt=1)
    """Dropout on embeddings and residual branches."""
    attention_dropout: float = Field(0.0, ge=0, lt=1)
    """Dropout on attention weights.  Above 0 torch takes the steps; on a CPU without fused
    attention they are about 4 times slower at T = 500."""
    initialization: Literal["scaled", "gpt2"] = "scaled"
    """scaled: N(0, 1 / fan_in); gpt2: N(0, 0.02), which is too small for width 32."""


class PretrainConfig(Section):
    """The training: loss, optimizer, batches, precision, checkpoints and logs."""

    loss: str = with_role(Role.OMIT_DEFAULT, CROSS_ENTROPY)
    """`cross_entropy`, or the name of an entry point of the group `sad_hpc.losses`."""
    epochs: int = Field(ge=1)
    batch_size: int = Field(64, ge=1)
    """Contexts in a step, over all ranks."""
    optimizer: Literal["adamw", "normuon"] = "adamw"
    """adamw: the paper's; normuon: see `pretrain.normuon`."""
    learning_rate: float = Field(1e-3, gt=0)
    """Learning rate of AdamW."""
    matrix_rate: float = Field(0.02, gt=0)
    """NorMuon's learning rate of the blocks' matrices; schedule and warm-up apply to it, too."""
    betas: list[Annotated[float, Field(ge=0, lt=1)]] = Field(
        [0.9, 0.999], min_length=2, max_length=2
    )
    """Decay rates of AdamW's moments."""
    warmup: float = Field(0.0, ge=0, lt=1)
    """Share of all steps in which the learning rate rises from 0."""
    schedule: Literal["constant", "cosine"] = "constant"
    """cosine: after the warm-up, the learning rate falls to 0 by the last step."""
    weight_decay: float = Field(1e-4, ge=0)
    gradient_clipping: float = Field(1.0, ge=0)
    """Largest gradient norm; 0 disables clipping."""
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    """auto: bf16 on a GPU with AdamW, fp32 otherwise."""
    kernel: Literal["auto", "torch"] = "auto"
    """auto: take the steps by CUDA graphs on a GPU, and by the compiled kernel on a CPU in fp32, if
    they support the model; torch: use neither."""
    zero_stage: Literal[0, 1, 2] = 0
    accumulate: int = with_role(Role.TRANSIENT, 1, ge=1)
    """Number of parts of a rank's share of a batch.  Only one part at a time has activations in
    memory; a step sums the gradients of all.  It affects memory and the draws of dropout, as the
    number of ranks does."""
    checkpoint_activations: bool = with_role(Role.TRANSIENT, False)
    """Compute activations inside of the blocks again in the backward pass instead of keeping them:
    less memory, and a third more time.  Steps on a GPU are then by torch without CUDA graphs.  The
    compiled kernel keeps the activations of one sequence in any case."""
    resample_probability: float = Field(0.0, ge=0, le=1)
    """Probability that a training context is resampled (see `pretrain.repetition`).  It needs a
    method with separate labels, and deterministic steps and rewards."""
    max_reward_weight: float = Field(1.0, ge=1, le=1e6)
    """Each resampled context favors rewarded transitions by a factor that is log-uniform from 1 to
    this."""
    holdout_tasks: int = Field(1024, ge=1)
    """Training tasks that are kept out of training to measure held-out loss and label accuracy.  Of
    logged tasks without parameters it counts contexts, and is rounded up to whole tasks."""
    validation_tasks: float = with_role(Role.OMIT_DEFAULT, 0.0, ge=0, lt=1)
    """Share of the distinct training tasks that are for validation (see `tasks.validation`).
    Training leaves out all their contexts, and measures loss and offline return on them.  Only
    tabular families have them."""
    keep: Literal["last", "best"] = with_role(Role.OMIT_DEFAULT, "last")
    """The weights that become the model: those of the last epoch, or of the epoch with the highest
    return on validation tasks; without such tasks, with the least held-out loss."""
    window_blocks: int | None = with_role(Role.OMIT_DEFAULT, None, ge=1)
    """Blocks of the dataset in a window.  The ranks hold their parts of two windows between them,
    instead of the dataset each, and an epoch's order is random within windows of random blocks (see
    `pretrain.epoch_windows`).  null, or at least as many as there are: the whole dataset."""
    checkpoint_minutes: float = with_role(Role.TRANSIENT, 5.0, ge=0)
    """Time between checkpoints.  Every epoch also ends with a checkpoint."""
    log_seconds: float = with_role(Role.TRANSIENT, 10.0, gt=0)
    """Time between progress lines in a log."""
    trackers: list[Literal["tensorboard", "wandb", "mlflow"]] = with_role(
        Role.TRANSIENT, ["tensorboard"]
    )
    """Trackers that record curves of the metrics (see `pretrain.trackers`)."""

    @model_validator(mode="after")
    def _check_windows(self) -> "PretrainConfig":
        if self.window_blocks is not None and self.validation_tasks:
            raise ValueError(
                "pretrain.validation_tasks needs the whole dataset in memory: set "
                "pretrain.window_blocks to null"
            )
        return self

    @model_validator(mode="after")
    def _check_optimizer(self) -> "PretrainConfig":
        # ZeRO and DeepSpeed's bf16 optimizer divide the flat parameter, and so cut matrices.
        if self.optimizer == "normuon" and (self.zero_stage > 0 or self.precision == "bf16"):
            raise ValueError(
                "pretrain.optimizer=normuon needs whole matrices in fp32: set pretrain.zero_stage "
                "to 0 and pretrain.precision to auto or fp32"
            )
        return self

    def uses_bf16(self, on_gpu: bool) -> bool:
        """Return whether the training is in bf16."""
        if self.precision == "auto":
            return on_gpu and self.optimizer == "adamw"
        return self.precision == "bf16"

    def batches(self, n_tasks: int) -> int:
        """Return the steps of an epoch over `n_tasks` tasks; an incomplete batch is left out."""
        return n_tasks // self.batch_size

    def check_ranks(self, ranks: int) -> None:
        """Check that the ranks, and the parts of their shares, can have equal sizes.

        Raises:
            ConfigError: the batch size is not a multiple of their number.
        """
        if self.batch_size % (ranks * self.accumulate):
            raise ConfigError(
                f"pretrain.batch_size={self.batch_size} does not divide over {ranks} ranks "
                f"(cluster.pretrain.ranks) with {self.accumulate} parts each "
                "(pretrain.accumulate): change one of them"
            )


class DITConfig(Section):
    """The Decision Importance Transformer's loss weight."""

    weight: float = Field(500.0, gt=0)
    """lambda: the factor of the loss."""
    discount: float = Field(0.99, gt=0, le=1)
    """gamma: the discount of the return-to-go.  A pull of a bandit is an episode of one step."""
    floor: float | None = Field(None, ge=0)
    """The least weight of a pair, before lambda.  Without it, contexts without a reward are never
    trained.  null: none."""
    prefixes: Literal["any", "past"] = with_role(Role.OMIT_DEFAULT, "any")
    """The transitions before the question of s_t.  any: 0 to T of the context, which may show the
    labelled action and its reward; past: 0 to t, of contexts that are not resampled.  Bandits do
    not use it."""


class EvaluateConfig(Section):
    """Offline and online evaluation on test tasks."""

    tasks: int = Field(200, ge=1)
    seed: int = Field(0, ge=0)
    online_episodes: int = Field(40, ge=1, le=100_000)
    headline_episodes: int = Field(10, ge=1)
    """The tables report the mean over this number of last online episodes."""
    chunk_tasks: int = Field(100, ge=1)
    """Tasks that are evaluated and saved together, with their own random stream."""
    memory: Literal["episode", "history"] = with_role(Role.ROW_SETTING, "episode")
    """The source of an online episode's context: the episode before, as in the paper, or a sample
    of all earlier episodes (see `evaluate.agent_memory`).  A bandit's context has all its pulls."""
    context: Literal["transitions", "episodes"] = with_role(Role.ROW_SETTING, "transitions")
    """The offline contexts: those of Algorithm 1, or episodes, on which AD and DIT are trained.
    Bandits have only one kind."""
    acting: Literal["given", "auto"] = with_role(Role.ROW_SETTING, "given")
    """The rule of online actions.  given: by the next two keys; auto: chosen for each trained model
    on training tasks (see `evaluate.acting`), and the paper's rule beside it."""
    temperature: float = with_role(Role.ROW_SETTING, 1.0, ge=1e-3, le=1e3)
    """Divisor of the logits for online actions: below 1, sampling favors the likeliest action.  The
    paper uses 1.  Offline actions are greedy and do not depend on it."""
    greedy_after_reward: bool = with_role(Role.ROW_SETTING, False)
    """If true, the agent acts greedily online once its context contains a reward.  The paper
    samples all online actions."""
    batch_size: int = with_role(Role.TRANSIENT, 512, ge=1)
    """Sequences in one forward pass."""

    @property
    def revision(self) -> int:
        """The revision of these settings in the signature; see `DataConfig.revision`."""
        # Rules are compared with their own random numbers since 1, by standard errors since 2, and
        # by those over distinct tasks since 3.
        return 3 if self.acting == "auto" else 0

    @model_validator(mode="after")
    def _check_online(self) -> "EvaluateConfig":
        if self.headline_episodes > self.online_episodes:
            raise ValueError(
                f"evaluate.headline_episodes={self.headline_episodes} exceeds "
                f"evaluate.online_episodes={self.online_episodes}"
            )
        if self.acting == "auto" and (self.temperature != 1 or self.greedy_after_reward):
            raise ValueError(
                "evaluate.acting=auto chooses evaluate.temperature and "
                "evaluate.greedy_after_reward: remove them, or set evaluate.acting to given"
            )
        return self
