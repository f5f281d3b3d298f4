"""The base class of task families, and its construction from a config's `task` section."""

from abc import ABC, abstractmethod
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from sad_hpc.errors import ConfigError, UserError
from sad_hpc.experiment.families import TaskConfig, new_family
from sad_hpc.experiment.method import RANDOM_PLAY
from sad_hpc.experiment.numbers import action_dtype
from sad_hpc.experiment.sections import DataConfig
from sad_hpc.tasks.fingerprint import Fingerprint
from sad_hpc.user_code import code_digests

Arrays: TypeAlias = dict[str, NDArray[Any]]
"""Arrays of tasks, such as the parts of their contexts, by name."""

SPLITS = ("train", "test")

PLAY = RANDOM_PLAY.removeprefix("labels/")
"""The group of labels that are actions of the behavior policy, or logged ones."""

ORACLE = "dpt_star"
"""The group of labels that are optimal actions."""

SPARSE_REWARD_SCALE = 4.0
"""Factor of sparse rewards in the model's input.  Attention must find a reward among all
transitions of the context; without the factor, training did not achieve this."""


def jumps(states: NDArray[Any], next_states: NDArray[Any]) -> NDArray[np.bool_]:
    """Return whether another state follows than the next one, (n, t - 1), of states (n, t, ...)."""
    return (states[:, 1:] != next_states[:, :-1]).any(axis=tuple(range(2, states.ndim)))


class TaskFamily(ABC):
    """A distribution over tasks.

    `distill.make_block` and `evaluate.families` choose their algorithms by the kind of family:
    `TabularFamily`, `BanditFamily`, `SimulatedFamily` or `Miniworld`.
    """

    config_class: ClassVar[type[TaskConfig]]

    def __init__(self, config: Any) -> None:
        self.config = config
        self.code = code_digests([type(self)])

    code: tuple[str, ...]
    """Digests of the user's code that decides the data (see `code_digests`)."""
    fingerprint: Fingerprint | None = None
    """Fingerprint of this process's environment; None: the settings decide the environment."""
    name: str
    """Value of the `task_family` column of result tables, such as darkroom_large."""
    title: str = ""
    """Name in pages and figures; empty: derived from `name`."""
    n_actions: int
    """Number of actions A; for continuous actions, the bins of each component."""
    components: int | None = None
    """Number of components a of an action in [-1, 1]^a; None: actions are numbers."""
    state_center: tuple[float, ...]
    """Offset (d,) subtracted from states before the model sees them; () for `frame_shape`."""
    state_scale: tuple[float, ...]
    """Factor (d,) applied after that, so that the model's inputs lie in about [-2, 2]."""
    test_share: float = 0.2
    """Share of tasks in the test split."""
    sparse_reward: bool = False
    """True if rewards are 0 or 1, and mostly 0.  Labels are those of Algorithm 5 then, else of
    Algorithm 3."""
    certain: bool = True
    """True if rewards and next states are deterministic.  A repeated transition then has no new
    information."""
    has_ends: bool = False
    """True if an episode can end before its T steps.  The model then sees a flag for each end."""
    dense_reward_scale: float = 1.0
    """Factor applied to rewards before the model sees them, unless they are sparse."""
    reward_dtype: type[np.generic]
    """The smallest type that holds every reward exactly."""
    image_size: int | None = None
    """Pixels along each side of the images that are rendered of states; None: no such images."""
    frame_shape: tuple[int, int, int] | None = None
    """(H, W, C) of states that are images in uint8; None: states are numbers."""
    data_revision: int = 0
    """Revision of the random draws of the data kernels.  It is part of the dataset's signature."""
    model_revision: int = 1
    """Revision of the model's features of this family.  It is part of the training's signature."""
    label_groups: tuple[str, ...] = ("sad", "dpt", ORACLE)
    """HDF5 groups of labels; families with unknown optimal actions omit the last one."""
    has_histories: bool = False
    """True if Q-learning histories are supported (`data.q_learning_steps`)."""
    shares_actions: bool = False
    """True if label rollouts can share their random actions (`data.common_actions`)."""
    draws_policies: bool = False
    """True if each context can have its own random policy (`data.context_policy`)."""
    has_validation: bool = False
    """True if the dataset's tasks repeat distinct ones, some of which can be for validation
    (`pretrain.validation_tasks`)."""
    takes_contexts: bool = False
    """True if contexts can be imported (`data.imported_contexts`); see `stored_tasks`."""
    takes_logs: bool = False
    """True if contexts of tasks without parameters can be imported, too."""
    has_environment: bool = True
    """False if all tasks are known by logged episodes alone.  There are no test tasks then, and no
    evaluation."""
    no_rounds: str = ""
    """Reason why this family has no later rounds (`data.rounds`); empty: it has."""
    context_groups: tuple[str, ...] = ("transitions", "episodes")
    """HDF5 groups of contexts; families whose contexts are rollouts have `transitions` only."""

    @property
    def description(self) -> str:
        """One-line summary that `sad-hpc doctor CONFIG` prints."""
        return f"{self.name}: {self.n_actions} actions"

    @property
    def splits(self) -> tuple[str, ...]:
        """The splits of a dataset: training only if there is no environment."""
        return SPLITS if self.has_environment else SPLITS[:1]

    def labels_of(self, data: DataConfig) -> tuple[str, ...]:
        """Return the HDF5 groups of labels in a dataset; rollouts need the tasks' parameters."""
        return self.label_groups if data.has_known_tasks else (PLAY,)

    @property
    def uses_return_threshold(self) -> bool:
        """True if labels are those of Algorithm 3, whose R is `data.return_threshold`."""
        return not (self.sparse_reward or self.draws_policies)

    @property
    def state_shape(self) -> tuple[int, ...]:
        """Shape of a state: (d,), or (H, W, C)."""
        return self.frame_shape or (len(self.state_center),)

    @property
    def image_shape(self) -> tuple[int, int, int] | None:
        """(H, W, C) of the images that the model sees; None: no images."""
        size = self.image_size
        return self.frame_shape if size is None else (size, size, 3)

    @property
    def action_dtype(self) -> np.dtype[Any]:
        """Dtype of actions in datasets."""
        if self.components is not None:
            return np.dtype(np.float32)
        return action_dtype(self.n_actions)

    def has_actions(self, actions: NDArray[Any]) -> bool:
        """Return whether all actions are valid: integers 0..A-1, or vectors in [-1, 1]^a."""
        if self.components is not None:
            return bool((np.abs(actions) <= 1).all())
        whole = np.issubdtype(actions.dtype, np.integer)
        return bool(whole and ((actions >= 0) & (actions < self.n_actions)).all())

    @property
    def reward_scale(self) -> float:
        """Factor applied to rewards before the model sees them."""
        return SPARSE_REWARD_SCALE if self.sparse_reward else self.dense_reward_scale

    def check_data(self, data: DataConfig) -> None:
        """Check that this family supports the `data` section.

        Raises:
            ConfigError: an unsupported setting; the message has the key, its value and the fix.
        """
        if data.q_learning_steps and not self.has_histories:
            raise ConfigError(
                "data.q_learning_steps is for tables of deterministic steps, which "
                f"{self.name} does not have: set it to 0"
            )
        if data.context_policy != "behavior" and not self.draws_policies:
            raise ConfigError(
                f"data.context_policy={data.context_policy} is for bandits: set it to behavior"
            )
        if data.continuation < 1 and not self.sparse_reward:
            raise ConfigError(
                f"data.continuation={data.continuation:g} is for sparse rewards: set it to 1"
            )
        if data.common_actions and not self.shares_actions:
            raise ConfigError(
                "data.common_actions is for label rollouts in tables and simulators, which "
                f"{self.name} does not have: set it to false"
            )
        if data.rounds > 1 and self.no_rounds:
            raise ConfigError(f"data.rounds={data.rounds}: {self.no_rounds}; set it to 1")
        if data.imported_contexts is None:
            return
        if not self.takes_contexts:
            raise ConfigError(
                "data.imported_contexts is for tabular and simulated families, and bandits: set it "
                "to null"
            )
        usual_values = {"q_learning_steps": 0, "context_policy": "behavior"}
        if not data.has_known_tasks:
            usual_values["rounds"] = 1
            if not self.takes_logs:
                raise ConfigError(
                    f"{self.name} needs the parameters of every task: import episodes whose "
                    "metadata has task_index and task_parameters"
                )
        for key, usual in usual_values.items():
            if (value := getattr(data, key)) != usual:
                raise ConfigError(
                    f"data.{key}={value} does not apply to imported contexts: set it to {usual}, "
                    "or data.imported_contexts to null"
                )

    def stored_tasks(self, parameters: NDArray[np.float64]) -> NDArray[Any]:
        """Convert imported task parameters (n, p) to the dataset's dtype; for `takes_contexts`.

        Raises:
            UserError: a row is not a training task of this family.
        """
        raise NotImplementedError(f"{self.name} cannot check imported task parameters")

    def no_task(self, parameters: NDArray[np.float64]) -> UserError:
        """Return the error for parameters (p,) that are not of a training task."""
        values = ", ".join(f"{value:g}" for value in parameters)
        return UserError(f"parameters ({values}) are not of a training task of {self.name}")

    def n_tasks(self, split: str, total: int) -> int:
        """Return how many of `total` tasks belong to `split`, by `test_share`."""
        train = round(total * (1 - self.test_share))
        return train if split == "train" else total - train

    @abstractmethod
    def are_optimal(
        self, parameters: NDArray[Any], query_states: NDArray[Any], actions: NDArray[Any]
    ) -> NDArray[np.bool_]:
        """Return whether actions are optimal in their query states.

        Args:
            parameters: (n, p) of the tasks.
            query_states: (n, K, d).
            actions: (n, K).

        Returns:
            (n, K).
        """

    @abstractmethod
    def dynamics_faults(
        self, parameters: NDArray[Any], group: str, context: Arrays, cut: bool = False
    ) -> list[str]:
        """List the ways in which contexts contradict the dynamics of their tasks.

        Args:
            parameters: (n, p) of the tasks.
            group: HDF5 group of the contexts.
            context: states, actions, rewards, next_states and, if `has_ends`, ends, (n, T, ...).
            cut: whether another episode may begin after any transition.
        """


def make_family(config: TaskConfig) -> TaskFamily:
    """Return the task family that a `task` section describes."""
    family: TaskFamily = new_family(config)
    return family
