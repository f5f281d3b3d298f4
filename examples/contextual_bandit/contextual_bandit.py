"""A linear contextual bandit: an example of a simulator with reference policies.

The agent observes a random context x in each step and pulls an arm.  The mean reward of arm a is
<theta_a, x>, and the next context does not depend on the arm.  The task is theta.  An episode is T
pulls, and labels look one pull ahead (`data.trust_horizon: 1`).
"""

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from sad_hpc.experiment.families import Horizon, TaskConfig
from sad_hpc.tasks.base import Arrays
from sad_hpc.tasks.simulated import SimulatedFamily, Simulators

Numbers = NDArray[np.float64]


class ContextualBanditConfig(TaskConfig):
    """The `task` section of the contextual bandit."""

    family: Literal["contextual_bandit"] = "contextual_bandit"
    horizon: Horizon = 100
    arms: int = Field(5, ge=2, le=255)
    dimension: int = Field(2, ge=1, le=64)
    """Size d of a context."""
    sigma: float = Field(0.3, gt=0)
    """Standard deviation of rewards."""


class ContextualBandit(SimulatedFamily):
    """Contexts ~ N(0, I) and theta_a ~ N(0, I / d); a task's parameters are theta, (A * d,)."""

    config_class = ContextualBanditConfig
    name = "contextual_bandit"

    def __init__(self, config: ContextualBanditConfig) -> None:
        super().__init__(config)
        self.n_actions = config.arms
        self.state_center = (0.0,) * config.dimension
        self.state_scale = (1.0,) * config.dimension

    def draw_tasks(self, split: str, count: int, generator: np.random.Generator) -> Numbers:
        """Draw theta, (count, A * d); continuous values do not repeat."""
        size = self.config.arms * self.config.dimension
        return generator.standard_normal((count, size)) / np.sqrt(self.config.dimension)

    def simulators(self, parameters: Numbers, generator: np.random.Generator) -> "Pulls":
        """Return bandits with random contexts."""
        theta = parameters.reshape(len(parameters), self.config.arms, self.config.dimension)
        contexts = generator.standard_normal((len(theta), self.config.dimension))
        return Pulls(theta, contexts, self.config.sigma, generator)

    def reference_returns(
        self,
        parameters: Numbers,
        shown: Arrays | None,
        episodes: int,
        generator: np.random.Generator,
    ) -> dict[str, NDArray[np.float32]]:
        """Return the returns of the optimal policy, LinUCB and Thompson sampling."""
        theta = self.simulators(parameters, generator).theta
        learners: dict[str, ArmRegression] = {
            "optimal": Optimal(theta),
            "LinUCB": LinUCB(theta.shape, sigma=1.0, precision=1.0),
            "Thompson": Thompson(theta.shape, self.config.sigma, float(theta.shape[2]), generator),
        }
        returns, seed = {}, int(generator.integers(2**63))
        for name, learner in learners.items():
            common = np.random.default_rng(seed)  # equal contexts and noise for every policy
            for step in range(0 if shown is None else shown["actions"].shape[1]):
                learner.observe(
                    *(shown[part][:, step] for part in ("states", "actions", "rewards"))
                )
            played = [self._play(learner, parameters, common) for _ in range(episodes)]
            returns[name] = np.stack(played, axis=1).astype(np.float32)
        return returns

    def _play(
        self, learner: "ArmRegression", parameters: Numbers, generator: np.random.Generator
    ) -> Numbers:
        """Return the returns (n,) of an episode, from whose pulls the learner learns."""
        pulls, total = self.simulators(parameters, generator), np.zeros(len(parameters))
        for _ in range(self.config.horizon):
            contexts = pulls.contexts
            arms = learner.choose(contexts)
            rewards = pulls.step(arms)
            learner.observe(contexts, arms, rewards)
            total += rewards
        return total


class Pulls(Simulators):
    """n contextual bandits.

    Args:
        theta: (n, A, d).
        contexts: (n, d), of the next pulls.
        sigma: standard deviation of rewards.
        generator: random numbers of contexts and rewards.
    """

    def __init__(
        self, theta: Numbers, contexts: Numbers, sigma: float, generator: np.random.Generator
    ) -> None:
        self.theta, self._sigma, self._generator = theta, sigma, generator
        self.ended = np.zeros(len(theta), np.bool_)
        self._show(contexts)

    def start(self, rows: NDArray[np.int64], generator: np.random.Generator) -> None:
        """Draw contexts."""
        contexts = self.contexts.copy()
        contexts[rows] = generator.standard_normal((len(rows), contexts.shape[1]))
        self._show(contexts)

    def step(self, actions: NDArray[Any]) -> NDArray[np.float32]:
        """Pull arms and draw the next contexts."""
        pulled = self.theta[np.arange(len(actions)), actions.astype(np.int64)]
        noise = self._sigma * self._generator.standard_normal(len(actions))
        rewards = (pulled * self.contexts).sum(axis=1) + noise
        self._show(self._generator.standard_normal(self.contexts.shape))
        return rewards.astype(np.float32)

    def copied(self, rows: NDArray[np.int64], generator: np.random.Generator) -> "Pulls":
        """Return bandits with the same contexts and independent rewards."""
        fresh = generator.spawn(1)[0]
        return Pulls(self.theta[rows], self.contexts[rows], self._sigma, fresh)

    def _show(self, contexts: Numbers) -> None:
        self.contexts, self.observations = contexts, contexts.astype(np.float32)


class ArmRegression:
    """The posterior of every arm's theta in n tasks: Bayesian linear regression.

    Args:
        shape: (n, A, d).
        sigma: standard deviation of rewards.
        precision: inverse variance of each component of theta before the pulls.
    """

    def __init__(self, shape: tuple[int, ...], sigma: float, precision: float) -> None:
        self._sigma, self._rows = sigma, np.arange(shape[0])
        self._precision = np.broadcast_to(precision * np.eye(shape[2]), (*shape, shape[2])).copy()
        self._covariance = np.linalg.inv(self._precision)
        self._sums = np.zeros(shape)

    def observe(self, contexts: NDArray[Any], arms: NDArray[Any], rewards: NDArray[Any]) -> None:
        """Learn from a pull in each task: contexts (n, d), arms (n,) and rewards (n,)."""
        own = self._rows, arms.astype(np.int64)
        scaled = contexts.astype(np.float64) / self._sigma
        self._precision[own] += scaled[:, :, None] * scaled[:, None]
        self._covariance[own] = np.linalg.inv(self._precision[own])
        self._sums[own] += scaled * rewards[:, None] / self._sigma

    def choose(self, contexts: Numbers) -> NDArray[np.int64]:
        """Choose arms, (n,)."""
        return self.scores(contexts).argmax(axis=1)

    def scores(self, contexts: Numbers) -> Numbers:
        """Return a score of every arm, (n, A); this one is its posterior mean."""
        return np.einsum("nai,ni->na", self.means, contexts)

    @property
    def means(self) -> Numbers:
        """Posterior means of theta, (n, A, d)."""
        return np.einsum("naij,naj->nai", self._covariance, self._sums)


class LinUCB(ArmRegression):
    """The policy that maximizes the mean plus one standard deviation."""

    def scores(self, contexts: Numbers) -> Numbers:
        """Return the upper bounds of arms."""
        variances = np.einsum("ni,naij,nj->na", contexts, self._covariance, contexts)
        return super().scores(contexts) + np.sqrt(variances)


class Thompson(ArmRegression):
    """The policy that maximizes a draw from the posterior."""

    def __init__(
        self,
        shape: tuple[int, ...],
        sigma: float,
        precision: float,
        generator: np.random.Generator,
    ) -> None:
        super().__init__(shape, sigma, precision)
        self._generator = generator

    def scores(self, contexts: Numbers) -> Numbers:
        """Return the means of a drawn theta."""
        normal = self._generator.standard_normal(self._sums.shape)
        roots = np.linalg.cholesky(self._covariance)
        drawn = self.means + np.einsum("naij,naj->nai", roots, normal)
        return np.einsum("nai,ni->na", drawn, contexts)


class Optimal(ArmRegression):
    """The policy that knows theta (n, A, d)."""

    def __init__(self, theta: Numbers) -> None:
        super().__init__(theta.shape, 1.0, 1.0)
        self._theta = theta

    def scores(self, contexts: Numbers) -> Numbers:
        """Return the mean rewards of arms."""
        return np.einsum("nai,ni->na", self._theta, contexts)
