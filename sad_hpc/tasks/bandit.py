"""Gaussian and Bernoulli multi-armed bandits (paper, Environmental Setup); Bernoulli for test only.

A task is a vector of arm means.  There is a single state, a step pulls an arm, and an episode has T
pulls.  Rollouts and the contexts of Algorithm 1 are therefore the same.
"""

from abc import abstractmethod
from typing import Any, ClassVar, Literal

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray
from pydantic import Field

from sad_hpc.errors import ConfigError
from sad_hpc.experiment.behavior_policy import policy_table
from sad_hpc.experiment.families import Horizon, TaskConfig
from sad_hpc.experiment.sections import DataConfig
from sad_hpc.tasks.base import Arrays, TaskFamily


class BanditConfig(TaskConfig):
    """Settings of both kinds of bandit."""

    horizon: Horizon = 500
    """T: pulls in a context, and in an episode."""
    arms: int = Field(5, ge=2, le=255)


class NormalBanditConfig(BanditConfig):
    """Settings of bandits with normal rewards."""

    sigma: float = Field(0.3, gt=0, le=1e6)
    """Standard deviation of every arm's reward."""


class GaussianBanditConfig(NormalBanditConfig):
    """`task` section of Gaussian bandits."""

    family: Literal["gaussian_bandit"] = "gaussian_bandit"


class BernoulliBanditConfig(BanditConfig):
    """`task` section of Bernoulli bandits."""

    family: Literal["bernoulli_bandit"] = "bernoulli_bandit"


class BanditFamily(TaskFamily):
    """A distribution over vectors of arm means; a task's parameters are its means."""

    config: Any
    state_center = (0.0,)
    state_scale = (1.0,)
    certain = False
    draws_policies = True
    takes_contexts = True
    no_rounds = "a rollout of a bandit ends with its first pull, so later rounds change no label"
    context_groups = ("transitions",)

    def __init__(self, config: BanditConfig) -> None:
        super().__init__(config)
        self.name = config.family
        self.n_actions = config.arms

    def check_data(self, data: DataConfig) -> None:
        """Implement `TaskFamily.check_data`."""
        super().check_data(data)
        if data.oracle_error:
            raise ConfigError(f"data.oracle_error={data.oracle_error:g} is for rooms: set it to 0")
        if len(set(policy_table(data.behavior_policy, self.n_actions))) < self.n_actions:
            raise ConfigError(
                f"data.behavior_policy={data.behavior_policy} never pulls some arm, so Algorithm 2 "
                "would not end: give every arm a probability above 0"
            )

    def stored_tasks(self, parameters: NDArray[np.float64]) -> NDArray[np.float32]:
        """Implement `TaskFamily.stored_tasks`; the means of both kinds are in [0, 1]."""
        possible = (parameters >= 0) & (parameters <= 1)
        if parameters.shape[1] != self.n_actions or not possible.all():
            raise self.no_task(parameters[possible.all(axis=1).argmin()])
        return parameters.astype(np.float32)

    @abstractmethod
    def draw_means(self, count: int, generator: np.random.Generator) -> NDArray[np.float32]:
        """Draw the arm means of new tasks, (count, A)."""

    @abstractmethod
    def draw_rewards(
        self, means: NDArray[Any], generator: np.random.Generator
    ) -> NDArray[np.float32]:
        """Draw the rewards of pulls of arms with these means, in the same shape."""

    @property
    @abstractmethod
    def sigma(self) -> float:
        """Standard deviation of Gaussian rewards; 0 means Bernoulli rewards."""

    def are_optimal(
        self, parameters: NDArray[Any], query_states: NDArray[Any], actions: NDArray[Any]
    ) -> NDArray[np.bool_]:
        """Implement `TaskFamily.are_optimal`."""
        chosen = np.take_along_axis(parameters, actions.astype(np.int64), axis=1)
        return chosen == parameters.max(axis=1, keepdims=True)

    def dynamics_faults(
        self, parameters: NDArray[Any], group: str, context: Arrays, cut: bool = False
    ) -> list[str]:
        """Check that arms exist, and that mean rewards are within six standard errors."""
        actions, rewards = context["actions"].astype(np.int64), context["rewards"]
        if not self.has_actions(context["actions"]) or context["states"].any():
            return [f"{group} holds states or actions that {self.name} does not have"]
        residuals = rewards - np.take_along_axis(parameters, actions, axis=1)
        # The mean of n residuals has a standard deviation of at most max(sigma, 1/2) / sqrt(n).
        limit = 6 * max(self.sigma, 0.5) / np.sqrt(residuals.size)
        return [] if abs(residuals.mean()) < limit else [f"{group} has rewards of other arms"]


class NormalBandit(BanditFamily):
    """Bandits with rewards ~ N(mean, sigma)."""

    reward_dtype = np.float32

    def draw_rewards(
        self, means: NDArray[Any], generator: np.random.Generator
    ) -> NDArray[np.float32]:
        """Draw rewards from N(mean, sigma)."""
        noise = generator.standard_normal(means.shape, np.float32)
        return (means + np.float32(self.sigma) * noise).astype(np.float32)

    @property
    def sigma(self) -> float:
        """Standard deviation of every arm's reward, from the config."""
        return float(self.config.sigma)


class GaussianBandit(NormalBandit):
    """Bandits with means ~ U[0, 1] and rewards ~ N(mean, sigma)."""

    config_class: ClassVar[type[TaskConfig]] = GaussianBanditConfig

    def draw_means(self, count: int, generator: np.random.Generator) -> NDArray[np.float32]:
        """Draw means from U[0, 1], (count, A)."""
        return generator.random((count, self.n_actions), np.float32)


class BernoulliBandit(BanditFamily):
    """Bandits with means ~ Beta(1, 1), which is U[0, 1], and rewards ~ Bernoulli(mean)."""

    config_class: ClassVar[type[TaskConfig]] = BernoulliBanditConfig
    reward_dtype = np.uint8

    def draw_means(self, count: int, generator: np.random.Generator) -> NDArray[np.float32]:
        """Draw means from Beta(1, 1), (count, A)."""
        return generator.beta(1, 1, (count, self.n_actions)).astype(np.float32)

    def draw_rewards(
        self, means: NDArray[Any], generator: np.random.Generator
    ) -> NDArray[np.float32]:
        """Draw rewards from Bernoulli(mean)."""
        return (generator.random(means.shape) < means).astype(np.float32)

    @property
    def sigma(self) -> float:
        """0, which means Bernoulli rewards."""
        return 0.0


class BanditEnv(gymnasium.Env[NDArray[np.uint8], np.int64]):
    """One bandit as a Gymnasium environment; the observation is always [0]."""

    metadata: dict[str, Any] = {"render_modes": []}

    def __init__(
        self,
        kind: str = "gaussian_bandit",
        means: tuple[float, ...] = (0.1, 0.3, 0.5, 0.7, 0.9),
        horizon: int = 500,
    ) -> None:
        self._family: BanditFamily
        if kind == "gaussian_bandit":
            self._family = GaussianBandit(GaussianBanditConfig(arms=len(means), horizon=horizon))
        else:
            self._family = BernoulliBandit(BernoulliBanditConfig(arms=len(means), horizon=horizon))
        self._means = np.array(means, np.float32)
        self.observation_space = spaces.Box(0, 0, (1,), np.uint8)
        self.action_space = spaces.Discrete(len(means))
        self._pulls = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.uint8], dict[str, Any]]:
        """Start an episode; see gymnasium.Env.reset."""
        super().reset(seed=seed)
        self._pulls = 0
        return np.zeros(1, np.uint8), {}

    def step(self, action: np.int64) -> tuple[NDArray[np.uint8], float, bool, bool, dict[str, Any]]:
        """Pull an arm; see gymnasium.Env.step."""
        reward = self._family.draw_rewards(self._means[None, int(action)], self.np_random)
        self._pulls += 1
        truncated = self._pulls >= self._family.config.horizon
        return np.zeros(1, np.uint8), float(reward[0]), False, truncated, {}


for _kind in ("gaussian", "bernoulli"):
    gymnasium.register(
        id=f"sad_hpc/{_kind.title()}Bandit-v0",
        entry_point="sad_hpc.tasks.bandit:BanditEnv",
        kwargs={"kind": f"{_kind}_bandit"},
    )
