"""Answers of the Bayes-optimal learner to the questions of a training.

It knows the distributions of training tasks and labels, and computes the exact posterior of the
label given a context.  No model has a lower expected loss.  The excess loss of a model is its loss
minus this one.
"""

from dataclasses import dataclass
from functools import singledispatch

import numpy as np
from numpy.typing import NDArray

from sad_hpc.dataset.reader import Arrays
from sad_hpc.experiment.per_round import first_round
from sad_hpc.experiment.sections import DataConfig
from sad_hpc.ideal.arms import best_arm_probabilities
from sad_hpc.ideal.label_law import label_law
from sad_hpc.ideal.posterior import after_prefixes, consistent
from sad_hpc.tasks.bandit import BanditFamily, GaussianBandit
from sad_hpc.tasks.base import TaskFamily
from sad_hpc.tasks.tabular import TABLE_ENTRIES, TabularFamily

AT_ONCE = 64
"""Number of contexts whose posteriors after every prefix are in memory at once."""


@dataclass(frozen=True)
class IdealAnswers:
    """Answers for n contexts with one query state each, after all T + 1 prefixes."""

    probabilities: NDArray[np.float32]
    """(n, T + 1, A)"""
    told: NDArray[np.bool_]
    """(n, T + 1): whether a single task is consistent with the prefix."""
    right: NDArray[np.bool_]
    """(n, A): whether an action is optimal in the query state."""


@singledispatch
def ideal_answers(
    family: TaskFamily, data: DataConfig, labels: str, columns: Arrays
) -> IdealAnswers | None:
    """Return the Bayes-optimal answers to held-out questions; None if they are not computable.

    Args:
        family: family of the tasks; the prior is uniform over the training split.
        data: settings of contexts and labels.
        labels: HDF5 group of the labels, such as `labels/sad`.
        columns: columns of n tasks: states, actions, rewards and next_states (n, T, ...) and, if
            `has_ends`, ends (n, T), of contexts with drawn states; query_states (n, K, d), of which
            the first is used; parameters (n, p).
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
        # (n, T + 1, G) x (n, G, A): the query state is evidence of the task, too.
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
    """Return the answers for Gaussian bandits.

    Labels of Algorithm 2 are assumed to come from exactly N pulls of every arm, although most arms
    have more pulls when the last one reaches N.
    """
    if not isinstance(family, GaussianBandit) or labels == "labels/dpt":
        return None
    pulls = first_round(data.trust_horizon)
    noise = family.sigma / np.sqrt(pulls) if labels == "labels/sad" else 0.0
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
