"""Labels drawn twice for the same query states: how far they can be trusted, by random data alone.

Two labels that are drawn independently agree where rollouts tell the actions apart, and only by
chance where they do not.  Query states are drawn uniformly and kept whether a rollout found a
reward or not, so that a rule which says nothing about most states is seen to do so.
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
from sad_hpc.experiment.behavior_policy import policy_table
from sad_hpc.experiment.integers import labelled
from sad_hpc.experiment.sections import DataConfig
from sad_hpc.kernels.random import stream
from sad_hpc.tasks.bandit import BanditFamily
from sad_hpc.tasks.base import TaskFamily
from sad_hpc.tasks.miniworld.family import Miniworld
from sad_hpc.tasks.tabular import TabularFamily

SPLIT = 2
"""Number of the random streams' split: neither training's nor test's."""


@dataclass(frozen=True)
class Repeats:
    """Two independent labels of each of n query states; `labelled` says which are known."""

    data: DataConfig
    """N, N_ep and everything else by which they were made."""
    parameters: NDArray[Any]
    """(n, p), of the tasks."""
    query_states: NDArray[Any]
    """(n, d)"""
    first: NDArray[Any]
    """(n,)"""
    second: NDArray[Any]
    """(n,)"""
    transitions: float
    """Spent on one label, on average."""

    @property
    def consensus(self) -> float:
        """The share of query states in which both are there and agree."""
        return float(((self.first == self.second) & labelled(self.first)).mean())

    @property
    def spent(self) -> float:
        """Transitions of all of these labels."""
        return 2 * len(self.first) * self.transitions

    @property
    def coverage(self) -> float:
        """The share of query states that have a label."""
        return float(labelled(self.first).mean())

    def right(self, family: TaskFamily) -> float:
        """The share of query states whose label is optimal: for reports, no choice knows of it."""
        known = labelled(self.first)
        labels = self.query_states[known, None], self.first[known, None]
        return float(family.are_optimal(self.parameters[known], *labels).sum() / len(known))


@functools.singledispatch
def repeat_labels(family: TaskFamily, data: DataConfig, count: int) -> Repeats:
    """`count` query states of training tasks, drawn uniformly, each labelled twice.

    Raises:
        TypeError: there is no such family.
    """
    raise TypeError(f"no labels of {type(family).__name__}")


@repeat_labels.register
def _bandit(family: BanditFamily, data: DataConfig, count: int) -> Repeats:
    means = family.draw_means(count, np.random.default_rng(_stream(data, "tasks")))
    policy, ties = _policy(family, data), data.tie_break == "random"
    drawn = [
        distill_bandit_labels(
            means, family.sigma, policy, data.trust_horizon, ties, _stream(data, purpose)
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
