"""What a learner that makes no mistake answers to the questions of a training.

It knows the law of the training tasks and of the labels, and reads off a context all that it tells.
A training's loss cannot fall below its loss; what is above it, the excess, is what can be learned.
"""

from dataclasses import dataclass
from functools import singledispatch

import numpy as np
from numpy.typing import NDArray

from sad_hpc.dataset.reader import Arrays
from sad_hpc.experiment.sections import DataConfig
from sad_hpc.ideal.arms import best_arm_probabilities
from sad_hpc.ideal.label_law import label_law
from sad_hpc.ideal.posterior import after_prefixes, consistent
from sad_hpc.tasks.bandit import BanditFamily, GaussianBandit
from sad_hpc.tasks.base import TaskFamily
from sad_hpc.tasks.tabular import TABLE_ENTRIES, TabularFamily

AT_ONCE = 64
"""Contexts in memory at once, with every task after every prefix."""


@dataclass(frozen=True)
class IdealAnswers:
    """Of n contexts with one query state each, which is asked after all T + 1 prefixes."""

    probabilities: NDArray[np.float32]
    """(n, T + 1, A)"""
    told: NDArray[np.bool_]
    """(n, T + 1): whether the prefix leaves a single task."""
    right: NDArray[np.bool_]
    """(n, A): whether an action is optimal in the query state."""


@singledispatch
def ideal_answers(
    family: TaskFamily, data: DataConfig, labels: str, columns: Arrays
) -> IdealAnswers | None:
    """The ideal answers to held-out questions; None where they are not known.

    Args:
        family: of the tasks; all of the training split's are equally likely.
        data: says how contexts and labels are made.
        labels: HDF5 group of the labels, such as `labels/sad`.
        columns: of n tasks: states, actions, rewards and next_states (n, T, ...), ends (n, T) where
            there are any, of contexts whose states are drawn; query_states (n, K, d), of which the
            first is asked, and parameters (n, p).
    """
    return None


@ideal_answers.register
def _of_tables(
    family: TabularFamily, data: DataConfig, labels: str, columns: Arrays
) -> IdealAnswers | None:
    tasks = family.distinct["train"]
    if len(tasks) * family.table_entries > TABLE_ENTRIES:
        return None
    law = label_law(family, data, labels)
    if law is None:
        return None
    mdps = family.mdps(tasks)
    queries = family.state_numbers(columns["query_states"][:, 0])
    probabilities, told = [], []
    for first in range(0, len(queries), AT_ONCE):
        rows = slice(first, first + AT_ONCE)
        could = consistent(
            mdps,
            family.state_numbers(columns["states"][rows]),
            columns["actions"][rows],
            columns["rewards"][rows],
            family.state_numbers(columns["next_states"][rows]),
            columns["ends"][rows] if "ends" in columns else None,
            drawn=True,
        )
        left = after_prefixes(could)
        told.append((left > 0).sum(axis=2) == 1)
        # (n, T + 1, G) x (n, G, A): a query state that is likelier in a task speaks for it.
        weights = left.astype(np.float64) @ np.moveaxis(law[:, queries[rows]], 0, 1)
        probabilities.append(weights / weights.sum(axis=2, keepdims=True))
    return IdealAnswers(
        np.concatenate(probabilities).astype(np.float32),
        np.concatenate(told),
        _optimal(family, columns),
    )


@ideal_answers.register
def _of_arms(
    family: BanditFamily, data: DataConfig, labels: str, columns: Arrays
) -> IdealAnswers | None:
    """Labels of Algorithm 2 are taken to come from N pulls of every arm; the policy's last arm to
    reach N leaves the others with a few more."""
    if not isinstance(family, GaussianBandit) or labels == "labels/dpt":
        return None
    noise = family.sigma / np.sqrt(data.trust_horizon) if labels == "labels/sad" else 0.0
    probabilities = best_arm_probabilities(
        columns["actions"], columns["rewards"], family.n_actions, family.sigma, noise
    )
    none = np.zeros(probabilities.shape[:2], np.bool_)
    return IdealAnswers(probabilities.astype(np.float32), none, _optimal(family, columns))


def _optimal(family: TaskFamily, columns: Arrays) -> NDArray[np.bool_]:
    """Return whether an action is optimal in a task's first query state, (n, A)."""
    shape = len(columns["parameters"]), family.n_actions
    states = np.repeat(columns["query_states"][:, :1], family.n_actions, axis=1)
    actions = np.broadcast_to(np.arange(family.n_actions), shape)
    return family.are_optimal(columns["parameters"], states, actions)
