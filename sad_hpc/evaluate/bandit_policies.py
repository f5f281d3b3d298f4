"""Bandit algorithms as references: Bayes-optimal learners, UCB, LinUCB and the empirical mean."""

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from sad_hpc.evaluate.result import BAYES_OPTIMAL
from sad_hpc.ideal import linear_arms
from sad_hpc.ideal.arms import posterior_draws, posterior_means
from sad_hpc.tasks.bandit import BanditFamily
from sad_hpc.tasks.linear_bandit import LinearBandit


class BanditPolicy(Protocol):
    """A policy for n bandits."""

    def choose(self) -> NDArray[np.int64]:
        """Choose an arm for each task, (n,)."""

    def observe(self, arms: NDArray[np.int64], rewards: NDArray[np.float32]) -> None:
        """Learn from one pull (n,) in each task."""


def run_bandit(
    family: BanditFamily,
    means: NDArray[np.float32],
    policy: BanditPolicy,
    generator: np.random.Generator,
    report: Callable[[int], None] = lambda pulls: None,
) -> NDArray[np.int64]:
    """Play T pulls in tasks with means (n, A), and return the arms (n, T)."""
    arms = np.empty((len(means), family.config.horizon), np.int64)
    for pull in range(arms.shape[1]):
        chosen = policy.choose()
        arms[:, pull] = chosen
        expected = np.take_along_axis(means, chosen[:, None], axis=1)[:, 0]
        policy.observe(chosen, family.draw_rewards(expected, generator))
        report(pull + 1)
    return arms


class Tally:
    """Counts and sums of rewards by arm in n tasks, the statistics of classical algorithms."""

    def __init__(self, family: BanditFamily, n_tasks: int, generator: np.random.Generator) -> None:
        self._family, self._generator = family, generator
        self._counts = np.zeros((n_tasks, family.n_actions))
        self._sums = np.zeros((n_tasks, family.n_actions))

    def observe(self, arms: NDArray[np.int64], rewards: NDArray[np.float32]) -> None:
        """Implement `BanditPolicy.observe`."""
        tasks = np.arange(len(arms))
        self._counts[tasks, arms] += 1
        self._sums[tasks, arms] += rewards

    def _averages(self) -> NDArray[np.float64]:
        """Return average rewards (n, A), infinite for arms without pulls."""
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.where(self._counts > 0, self._sums / self._counts, np.inf)


class EmpiricalMean(Tally):
    """A policy that pulls each arm once and then the arm with the highest average."""

    def choose(self) -> NDArray[np.int64]:
        """Implement `BanditPolicy.choose`."""
        return self._averages().argmax(axis=1)


class UCB(Tally):
    """A policy that maximizes the average plus 1 / sqrt(pulls), as in the DPT paper."""

    def choose(self) -> NDArray[np.int64]:
        """Implement `BanditPolicy.choose`."""
        bonus = 1 / np.sqrt(np.maximum(self._counts, 1))
        return (self._averages() + bonus).argmax(axis=1)


class Thompson(Tally):
    """Thompson sampling from the exact posterior: the Bayes-optimal learner of DPT*."""

    def choose(self) -> NDArray[np.int64]:
        """Implement `BanditPolicy.choose`."""
        known = (self._counts, self._sums, self._family.sigma)
        return posterior_draws(*known, self._generator).argmax(axis=1)


class LinearTally(Tally):
    """Statistics of the pulls of linear bandits."""

    _family: LinearBandit


class LinUCB(LinearTally):
    """A policy that maximizes LinUCB's bounds, as in the DPT paper."""

    def choose(self) -> NDArray[np.int64]:
        """Implement `BanditPolicy.choose`."""
        features = self._family.features
        return linear_arms.upper_bounds(features, self._counts, self._sums).argmax(axis=1)


class LinearThompson(LinearTally):
    """Thompson sampling from the exact posterior of linear bandits."""

    def choose(self) -> NDArray[np.int64]:
        """Implement `BanditPolicy.choose`."""
        known = (self._family.features, self._counts, self._sums, self._family.sigma)
        return linear_arms.posterior_draws(*known, self._generator).argmax(axis=1)


MakePolicy = Callable[[Any, int, np.random.Generator], BanditPolicy]
"""A function from a family, a number of tasks and a generator to a policy."""
POLICIES: dict[str, MakePolicy] = {
    "empirical mean": EmpiricalMean,
    "UCB": UCB,
    BAYES_OPTIMAL: Thompson,
}
LINEAR_POLICIES = POLICIES | {"LinUCB": LinUCB, BAYES_OPTIMAL: LinearThompson}


def reference_policies(family: BanditFamily) -> dict[str, MakePolicy]:
    """Return the reference policies of a family, by name."""
    return LINEAR_POLICIES if isinstance(family, LinearBandit) else POLICIES


def offline_empirical_mean(
    actions: NDArray[np.int64], rewards: NDArray[np.float32], n_arms: int
) -> NDArray[np.int64]:
    """Return the arm with the highest average after each prefix of contexts (n, T), (n, T).

    Arms without pulls in the prefix are not chosen.
    """
    counts, sums = running_tally(actions, rewards, n_arms)
    with np.errstate(invalid="ignore", divide="ignore"):
        averages = np.where(counts > 0, sums / counts, -np.inf)
    return averages.argmax(axis=2)


def offline_ideal(
    family: BanditFamily, actions: NDArray[np.int64], rewards: NDArray[np.float32]
) -> NDArray[np.int64]:
    """Return the arm with the highest posterior mean after each prefix of contexts, (n, T)."""
    counts, sums = running_tally(actions, rewards, family.n_actions)
    if isinstance(family, LinearBandit):
        means = linear_arms.posterior_means(family.features, counts, sums, family.sigma)
        return means.argmax(axis=2)
    return posterior_means(counts, sums, family.sigma).argmax(axis=2)


def running_tally(
    actions: NDArray[np.int64], rewards: NDArray[np.float32], n_arms: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return pulls and sums of rewards by arm after each prefix, both (n, T, A)."""
    pulled = actions[:, :, None] == np.arange(n_arms)
    return pulled.cumsum(axis=1).astype(np.float64), (pulled * rewards[:, :, None]).cumsum(axis=1)
