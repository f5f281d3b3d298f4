"""The sections of a config file that every experiment has, one a stage or a part of it."""

import math
from typing import Literal

from pydantic import Field, model_validator

from sad_hpc.errors import ConfigError
from sad_hpc.experiment.config import Role, Section, with_role


class DataConfig(Section):
    """What `collect` makes: contexts and labels."""

    tasks: int = with_role(Role.ROW_SETTING, ge=2)
    """Number of tasks (the paper's "# of environments"), training and test together."""
    seed: int = Field(0, ge=0)
    queries_per_task: int = with_role(Role.ROW_SETTING, 1, ge=1, le=100_000)
    """K: query states of a task, each with a label, all by independent draws; 1 is the paper's."""
    trust_horizon: int = with_role(Role.ROW_SETTING, ge=1, le=10_000_000)
    """N: the length of a label rollout (Algorithms 3, 5), or pulls per arm (Algorithm 2)."""
    episodes_per_action: int = with_role(Role.ROW_SETTING, 1, ge=1, le=10**12)
    """N_ep of Theorem 2; 1 is the paper's algorithm."""
    score: Literal["mean", "fastest"] = with_role(Role.ROW_SETTING, "mean")
    """Of an action's N_ep rollouts: the mean of their discounted returns, or the best.

    `best` is for tasks whose steps are certain and rewards sparse: with enough rollouts the label
    is an action of a shortest way, whatever the random policy's own values prefer.
    """
    discount: float = with_role(Role.ROW_SETTING, 0.9, gt=0, lt=1)
    """gamma of the label rollouts' returns."""
    return_threshold: float | None = with_role(Role.ROW_SETTING, 1e-6)
    """R of Algorithm 3: null accepts every query state; unused where rewards are sparse
    (Algorithm 5)."""
    candidates: int = with_role(Role.ROW_SETTING, 32, ge=2, le=100_000)
    """First actions that a label is chosen among, drawn by the behavior policy, where actions are
    vectors; of finitely many actions all are tried."""
    tie_break: Literal["lowest", "random"] = with_role(Role.ROW_SETTING, "lowest")
    """Which of several equally good rollouts names SAD's label; the oracle's is always random."""
    rounds: int = with_role(Role.ROW_SETTING, 1, ge=1, le=10)
    """How often labels are distilled: the rollouts of a further round follow the model that SAD has
    trained on the labels of the round before, instead of the random policy."""
    behavior_policy: Literal["uniform"] | list[float] = "uniform"
    """One fixed distribution over actions, for contexts, episodes and label rollouts."""
    context_policy: Literal["behavior", "drawn"] = with_role(Role.ROW_SETTING, "behavior")
    """Of bandits' training contexts: the behavior policy, or a random one drawn for each task (see
    `distill.bandits`).  Test contexts and labels are the behavior policy's in any case."""
    q_learning_steps: int = with_role(Role.ROW_SETTING, 0, ge=0, le=10**12)
    """Steps of Q-learning in every task; `episodes` is a window of T consecutive steps.  0: they
    are rollouts of the behavior policy."""
    imported_contexts: str | None = with_role(
        Role.ROW_SETTING, None, pattern="^minari-[0-9a-f]{12}$"
    )
    """The name that `sad-hpc import` prints for training tasks and contexts from logged episodes.
    null: they are drawn."""
    block_tasks: int = Field(2048, ge=1)
    """Tasks in a block: the unit of sharding, of random streams and of resuming."""
    schedule: Literal["dynamic", "static"] = with_role(Role.TRANSIENT, "dynamic")
    """How blocks are handed to MPI ranks; the data are the same."""

    def blocks(self, n_tasks: int) -> int:
        """Of so many tasks; the last block may be smaller than the others."""
        return math.ceil(n_tasks / self.block_tasks)

    @property
    def revision(self) -> int:
        """Raised where the same settings have come to mean other data, in every family."""
        return 1 if self.q_learning_steps else 0


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
    """Above 0 torch takes the steps, on a CPU without fused attention: a factor of 4 at T = 500."""
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
    kernel: Literal["auto", "torch"] = "auto"
    """auto: CUDA graphs take the steps on a GPU, and on a CPU in fp32 the compiled kernel, where
    they can; torch: neither does."""
    zero_stage: Literal[0, 1, 2] = 0
    resample_probability: float = Field(0.0, ge=0, le=1)
    """Probability that a context is trained on with repetitions (see `pretrain.repetition`), for
    methods with labels of their own and tasks whose steps and rewards are certain."""
    max_reward_weight: float = Field(1.0, ge=1, le=1e6)
    """In such a context rewarded transitions are favoured by a factor of its own, log-uniform from
    1 to this."""
    holdout_tasks: int = Field(1024, ge=1)
    """Training tasks that are kept out of training, to measure loss and label accuracy on."""
    checkpoint_minutes: float = with_role(Role.TRANSIENT, 5.0, ge=0)
    """Time between checkpoints; one is also made at the end of every epoch."""
    log_seconds: float = with_role(Role.TRANSIENT, 10.0, gt=0)
    """Time between progress lines in a log."""
    trackers: list[Literal["tensorboard", "wandb", "mlflow"]] = with_role(
        Role.TRANSIENT, ["tensorboard"]
    )
    """Who draws curves of the metrics (see `pretrain.trackers`)."""

    def batches(self, n_tasks: int) -> int:
        """Steps of an epoch over so many tasks; those that fill no batch are left for another."""
        return n_tasks // self.batch_size

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
    memory: Literal["episode", "history"] = with_role(Role.ROW_SETTING, "episode")
    """What an online episode's context is of: the episode before (the paper's), or a draw from all
    episodes so far (see `evaluate.memory`).  A bandit's context is all of its pulls anyway."""
    context: Literal["transitions", "episodes"] = with_role(Role.ROW_SETTING, "transitions")
    """What the offline contexts are: Algorithm 1's, or rollouts, on which AD and DIT are trained.
    Bandits have one kind only."""
    temperature: float = with_role(Role.ROW_SETTING, 1.0, ge=1e-3, le=1e3)
    """What the logits of an answer are divided by: below 1 online actions are drawn nearer to the
    likeliest one; the paper's are drawn at 1.  Offline the likeliest action stays the same."""
    greedy_after_reward: bool = with_role(Role.ROW_SETTING, False)
    """Whether online actions are greedy once the context contains a reward.  The paper samples them
    throughout: sampling finds a first reward, and keeps missing a goal that is known."""
    batch_size: int = with_role(Role.TRANSIENT, 512, ge=1)
    """Sequences in one forward pass."""

    @model_validator(mode="after")
    def _check_episodes(self) -> "EvaluateConfig":
        if self.headline_episodes > self.online_episodes:
            raise ValueError(
                f"evaluate.headline_episodes={self.headline_episodes} exceeds "
                f"evaluate.online_episodes={self.online_episodes}"
            )
        return self
