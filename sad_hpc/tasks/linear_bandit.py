"""Linear bandits (of the DPT paper): an arm's mean is linear in fixed features of the arm.

A task is a vector theta ~ N(0, I / d), and the mean of arm a is <theta, phi(a)>.  All tasks share
the features phi, so a pull of one arm is evidence about all arms.  A task's parameters are the A
means.
"""

from functools import cached_property
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from sad_hpc.experiment.families import Horizon, TaskConfig
from sad_hpc.tasks.bandit import NormalBandit, NormalBanditConfig

TOLERANCE = 1e-4
"""Largest difference between imported means and those of the nearest theta."""


class LinearBanditConfig(NormalBanditConfig):
    """`task` section of linear bandits; the defaults are those of the public code of DPT."""

    family: Literal["linear_bandit"] = "linear_bandit"
    horizon: Horizon = 200
    """T: pulls in a context, and in an episode."""
    arms: int = Field(10, ge=2, le=255)
    dimension: int = Field(2, ge=1, le=64)
    """d: size of theta and of an arm's features."""
    feature_seed: int = Field(1234, ge=0, lt=2**32)
    """Seed of the features.  1234 draws those of the public code of DPT."""


class LinearBandit(NormalBandit):
    """Bandits with means <theta, phi(arm)> and rewards ~ N(mean, sigma)."""

    config_class: ClassVar[type[TaskConfig]] = LinearBanditConfig
    config: LinearBanditConfig

    @cached_property
    def features(self) -> NDArray[np.float64]:
        """phi (A, d), independent N(0, 1 / d) numbers."""
        shape = self.config.arms, self.config.dimension
        # The legacy generator, as in jon--lee/decision-pretrained-transformer.
        drawn = np.random.RandomState(self.config.feature_seed).normal(size=shape)
        features: NDArray[np.float64] = drawn / np.sqrt(self.config.dimension)
        return features

    def draw_means(self, count: int, generator: np.random.Generator) -> NDArray[np.float32]:
        """Draw theta from N(0, I / d), and return the means (count, A)."""
        dimension = self.config.dimension
        theta = generator.standard_normal((count, dimension)) / np.sqrt(dimension)
        return (theta @ self.features.T).astype(np.float32)

    def stored_tasks(self, parameters: NDArray[np.float64]) -> NDArray[np.float32]:
        """Implement `TaskFamily.stored_tasks`; means must be linear in the features."""
        if parameters.shape[1] != self.n_actions:
            raise self.no_task(parameters[0])
        nearest = parameters @ np.linalg.pinv(self.features.T) @ self.features.T
        possible = np.abs(nearest - parameters).max(axis=1) < TOLERANCE
        if not possible.all():
            raise self.no_task(parameters[possible.argmin()])
        return parameters.astype(np.float32)
