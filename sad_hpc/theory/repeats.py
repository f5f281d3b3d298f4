"""Two independent labels of each query state, whose agreement measures their reliability.

Two independent labels agree if rollouts distinguish the actions, and otherwise only by chance.
Query states are drawn uniformly and kept even if no rollout has a reward, so the share of states
without a label is visible.
"""

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sad_hpc.distill.bandits import distill_bandit_labels
from sad_hpc.distill.labels import LabelRule
from sad_hpc.distill.pose_contexts import sample_pose_actions
from sad_hpc.distill.rollout_labels import distill_labels, distill_pose_labels
from sad_hpc.errors import ConfigError
from sad_hpc.experiment.behavior_policy import policy_table
from sad_hpc.experiment.numbers import labelled
from sad_hpc.experiment.per_round import first_round
from sad_hpc.experiment.sections import DataConfig
from sad_hpc.kernels.random import stream
from sad_hpc.tasks.bandit import BanditFamily
from sad_hpc.tasks.base import TaskFamily
from sad_hpc.tasks.miniworld.family import Miniworld
from sad_hpc.tasks.tabular import TabularFamily

SPLIT = 2
"""Split number of the random streams, distinct from those of training and test."""


@dataclass(frozen=True)
class Repeats:
    """Two independent labels of each of n query states; `labelled` masks missing ones."""

    data: DataConfig
    """Settings of the labels, including N and N_ep."""
    parameters: NDArray[Any]
    """(n, p): parameters of the tasks."""
    query_states: NDArray[Any]
    """(n, d)"""
    first: NDArray[Any]
    """(n,): first labels."""
    second: NDArray[Any]
    """(n,): second labels."""
    transitions: float
    """Mean number of transitions of a label."""

    @property
    def consensus(self) -> float:
        """Share of query states with two equal labels."""
        return float(((self.first == self.second) & labelled(self.first)).mean())

    @property
    def spent(self) -> float:
        """Number of transitions of all labels."""
        return 2 * len(self.first) * self.transitions

    @property
    def coverage(self) -> float:
        """Share of query states with a label."""
        return float(labelled(self.first).mean())

    def right(self, family: TaskFamily) -> float:
        """Return the share of query states with an optimal label, for reports only."""
        known = labelled(self.first)
        labels = self.query_states[known, None], self.first[known, None]
        return float(family.are_optimal(self.parameters[known], *labels).sum() / len(known))


@functools.singledispatch
def repeat_labels(family: TaskFamily, data: DataConfig, count: int) -> Repeats:
    """Draw `count` query states of training tasks uniformly, and label each twice.

    Raises:
        ConfigError: the family is not supported.
    """
    raise ConfigError(
        f"{family.name}: labels are repeated for rooms, bandits and Miniworld; to choose a trust "
        "horizon here, compare rows with grid: {data.trust_horizon: [...]}"
    )


@repeat_labels.register
def _bandit(family: BanditFamily, data: DataConfig, count: int) -> Repeats:
    means = family.draw_means(count, np.random.default_rng(_stream(data, "tasks")))
    policy, ties = _policy(family, data), data.tie_break == "random"
    pulls_of_arm = first_round(data.trust_horizon)
    drawn = [
        distill_bandit_labels(
            means, family.sigma, policy, pulls_of_arm, ties, _stream(data, purpose)
        )
        for purpose in ("sad", "reference")
    ]
    (first, pulls), (second, more) = drawn
    states = np.zeros((count, 1), np.uint8)
    return Repeats(data, means, states, first, second, (pulls + more) / (2 * count))


@repeat_labels.register
def _tabular(family: TabularFamily, data: DataConfig, count: int) -> Repeats:
    generator = np.random.default_rng(_stream(data, "tasks"))
    tasks = family.distinct_tasks("train")
    tasks = tasks[generator.permutation(len(tasks))[:count]]
    mdps = np.arange(count, dtype=np.int64) % len(tasks)
    rule = LabelRule.of(data, family.sparse_reward)
    tables, policy = family.mdps(tasks), _policy(family, data)
    queries = generator.integers(family.n_states, size=count).astype(np.uint16)
    while (outside := ~tables.occupied[mdps, queries]).any():
        queries[outside] = generator.integers(family.n_states, size=outside.sum())
    first, second = (
        distill_labels(tables, mdps, policy, rule, _stream(data, purpose), queries)
        for purpose in ("sad", "reference")
    )
    cost = (first.transitions + second.transitions) / (2 * count)
    states = family.coordinates[queries]
    return Repeats(data, tasks[mdps], states, first.actions, second.actions, cost)


@repeat_labels.register
def _poses(family: Miniworld, data: DataConfig, count: int) -> Repeats:
    parameters = family.parameters("train", 0, count)
    targets, policy = parameters[:, 0].astype(np.int64), _policy(family, data)
    queries, _ = sample_pose_actions(targets, policy, _stream(data, "tasks"))
    rule = LabelRule.of(data, family.sparse_reward)
    first, second = (
        distill_pose_labels(targets, policy, rule, _stream(data, purpose), queries)
        for purpose in ("sad", "reference")
    )
    cost = (first.transitions + second.transitions) / (2 * count)
    return Repeats(data, parameters, queries, first.actions, second.actions, cost)


def _stream(data: DataConfig, purpose: str) -> NDArray[np.uint64]:
    return stream(data.seed, SPLIT, 0, purpose)


def _policy(family: TaskFamily, data: DataConfig) -> NDArray[Any]:
    return policy_table(data.behavior_policy, family.n_actions)
