"""What a task family is, and how a config's `task` section becomes one."""

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from sad_hpc.errors import ConfigError, UserError
from sad_hpc.experiment.families import TaskConfig, new_family
from sad_hpc.experiment.integers import action_dtype
from sad_hpc.experiment.sections import DataConfig
from sad_hpc.tasks.fingerprint import Fingerprint
from sad_hpc.tasks.source_code import code_digests

SPLITS = ("train", "test")

ORACLE = "dpt_star"
"""The group of labels that are optimal actions."""

SPARSE_REWARD_SCALE = 4.0
"""Where rewards are sparse, the model sees a reward of 1 as 4: attention has to find it among all
transitions of the context, and does so within thousands of training steps instead of never."""


class TaskFamily(ABC):
    """A distribution over tasks, as every stage sees it.

    How blocks of data are made and how a model is evaluated depends on the kind of family
    (`TabularFamily`, `BanditFamily`, `Miniworld`): `distill.make_block` and `evaluate.stage`
    choose.
    """

    config_class: ClassVar[type[TaskConfig]]

    def __init__(self, config: Any) -> None:
        self.config = config
        self.code = code_digests([type(self)])

    code: tuple[str, ...]
    """Digests of code outside of this package that decides the data (see `code_digests`)."""
    fingerprint: Fingerprint | None = None
    """What tells this process's environment from that of another; None: the settings decide it."""
    name: str
    """The word in the `task_family` column of result tables, such as darkroom_large."""
    title: str = ""
    """The name for readers, in pages and figures; empty: made from `name`."""
    n_actions: int
    """How many actions there are; of continuous ones, bins of each component."""
    components: int | None = None
    """Of an action, where it is a vector in [-1, 1]^a; None: actions are numbers."""
    state_center: tuple[float, ...]
    """(d,): subtracted from states before the model sees them."""
    state_scale: tuple[float, ...]
    """(d,): multiplied after that, so that the model's inputs lie in about [-2, 2]."""
    sparse_reward: bool = False
    """Whether rewards are 0 or 1, and mostly 0: Algorithm 5 finds labels then, otherwise 3."""
    certain: bool = True
    """Whether an action has the same reward and next state each time, so that a transition that is
    seen again tells nothing new."""
    has_ends: bool = False
    """Whether an episode may end before its T steps; the model is told of each end then."""
    reward_dtype: type[np.generic]
    """The smallest type that holds every reward exactly."""
    image_size: int | None = None
    """Pixels along each side of the image that the model sees of a state; None: no images."""
    data_revision: int = 0
    """Raised when the kernels draw their random numbers in another way: a dataset of the same
    config then has other bytes, by the same laws."""
    model_revision: int = 1
    """Raised when the model makes something else of this family's states: a model of the same
    config then has other weights."""
    label_groups: tuple[str, ...] = ("sad", "dpt", ORACLE)
    """HDF5 groups of labels; without the last one where nobody knows the optimal actions."""
    has_histories: bool = False
    """Whether Q-learning can make histories of its tasks (`data.q_learning_steps`)."""
    draws_policies: bool = False
    """Whether each context can have a random policy of its own (`data.context_policy: drawn`)."""
    takes_contexts: bool = False
    """Whether contexts can be imported (`data.imported_contexts`); see `stored_tasks`."""
    follows_models: bool = False
    """Whether label rollouts can be those of a trained model (`data.rounds`)."""
    context_groups: tuple[str, ...] = ("context", "episodes")
    """HDF5 groups of contexts; families where rollouts are no different have `context` only."""

    @property
    def description(self) -> str:
        """What `sad-hpc doctor CONFIG` says of it."""
        return f"{self.name}: {self.n_actions} actions"

    @property
    def action_dtype(self) -> np.dtype[Any]:
        """The type of actions in datasets."""
        if self.components is not None:
            return np.dtype(np.float32)
        return action_dtype(self.n_actions)

    def has_actions(self, actions: NDArray[Any]) -> bool:
        """Whether all of these are its actions: 0..A-1, or vectors in [-1, 1]^a."""
        if self.components is not None:
            return bool((np.abs(actions) <= 1).all())
        whole = np.issubdtype(actions.dtype, np.integer)
        return bool(whole and ((actions >= 0) & (actions < self.n_actions)).all())

    @property
    def reward_scale(self) -> float:
        """Multiplied with rewards before the model sees them."""
        return SPARSE_REWARD_SCALE if self.sparse_reward else 1.0

    def check_data(self, data: DataConfig) -> None:
        """Refuses what no data of this family can be made by.

        Raises:
            ConfigError: the key, its value and the way out.
        """
        if data.q_learning_steps and not self.has_histories:
            raise ConfigError("data.q_learning_steps is for tabular task families")
        if data.context_policy != "behavior" and not self.draws_policies:
            raise ConfigError(f"data.context_policy={data.context_policy} is for bandits")
        if data.rounds > 1 and not self.follows_models:
            raise ConfigError(f"data.rounds={data.rounds} is for simulated task families")
        if data.imported_contexts is None:
            return
        if not self.takes_contexts:
            raise ConfigError(
                "data.imported_contexts is for tabular and simulated families, and bandits"
            )
        for key, usual in (("q_learning_steps", 0), ("context_policy", "behavior")):
            if (value := getattr(data, key)) != usual:
                raise ConfigError(
                    f"data.{key}={value} says how contexts are drawn, but these are imported: set "
                    f"it to {usual}, or data.imported_contexts to null"
                )

    def stored_tasks(self, parameters: NDArray[np.float64]) -> NDArray[Any]:
        """Somebody's parameters (n, p) as a dataset stores them; for `takes_contexts`.

        Raises:
            UserError: one is no training task of this family.
        """
        raise NotImplementedError(f"{self.name} does not know its tasks again")

    def no_task(self, parameters: NDArray[np.float64]) -> UserError:
        """What is raised where parameters (p,) are none of a training task."""
        values = ", ".join(f"{value:g}" for value in parameters)
        return UserError(f"parameters ({values}) are none of a training task of {self.name}")

    @abstractmethod
    def n_tasks(self, split: str, total: int) -> int:
        """How many of `total` tasks belong to `split`."""

    @abstractmethod
    def are_optimal(
        self, parameters: NDArray[Any], query_states: NDArray[Any], actions: NDArray[Any]
    ) -> NDArray[np.bool_]:
        """(n, K): whether actions (n, K) are optimal in query states (n, K, d) of tasks (n, p)."""

    @abstractmethod
    def dynamics_faults(
        self,
        parameters: NDArray[Any],
        group: str,
        context: dict[str, NDArray[Any]],
        cut: bool = False,
    ) -> list[str]:
        """What in contexts (n, T, ...) cannot have come from tasks (n, p).

        Args:
            parameters: of the tasks.
            group: the contexts' HDF5 group.
            context: states, actions, rewards and next_states, and ends where there are any.
            cut: whether another episode may begin after any transition.
        """


def make_family(config: TaskConfig) -> TaskFamily:
    """The family that a `task` section describes."""
    family: TaskFamily = new_family(config)
    return family
