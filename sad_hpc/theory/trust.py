"""What the theorems promise for a config, and beside it how often its labels are right."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import integrate

from sad_hpc.distill import make_block
from sad_hpc.errors import ConfigError
from sad_hpc.experiment import DataConfig, Experiment
from sad_hpc.policy import policy_table
from sad_hpc.tasks import BanditFamily, TabularFamily, TaskFamily, make_family
from sad_hpc.tasks.base import SPLITS
from sad_hpc.theory.bellman import assumption_2_fails, kappa, policy_q
from sad_hpc.theory.bounds import BanditBound, MDPBound

SIMULATED_TASKS = 20_000


@dataclass(frozen=True)
class Trust:
    """Of one choice of N and N_ep."""

    promised: float | None
    """The theorem's 1 - delta; None: N is below the theorem's minimum, and it promises nothing."""
    measured: float
    """Share of simulated labels that are optimal actions in their query states."""
    transitions: float
    """Environment transitions that a label takes."""


def trust(experiment: Experiment[Any]) -> Trust:
    """The theorem's level for an experiment's labels, and their accuracy in simulation.

    Raises:
        ConfigError: the family is neither a bandit nor tabular.
    """
    family, data = make_family(experiment.task), experiment.data
    measured, transitions = label_accuracy(family, data)
    if isinstance(family, BanditFamily):
        promised: float | None = expected_trustworthiness(family, data.trust_horizon)
    else:
        bound, horizon = mdp_bound(family, data), theorem_horizon(data)
        promised = None
        if horizon >= bound.least_horizon:
            promised = bound.trustworthiness(data.episodes_per_action, horizon)
    return Trust(promised, measured, transitions)


def label_accuracy(family: TaskFamily, data: DataConfig) -> tuple[float, float]:
    """Share of optimal actions among SIMULATED_TASKS labels, and transitions per label."""
    data = data.model_copy(update={"tasks": 2 * SIMULATED_TASKS, "block_tasks": SIMULATED_TASKS})
    block = make_block(family, data, "train", 0)
    right = family.are_optimal(
        block.arrays["tasks/parameters"],
        block.arrays["labels/sad/query_states"],
        block.arrays["labels/sad/actions"],
    )
    return float(right.mean()), block.transitions["labels_sad"] / len(right)


def expected_trustworthiness(family: BanditFamily, pulls: int) -> float:
    """Theorem 1's level, on average over the family's tasks.

    The gap between the two best of A means from U[0, 1] exceeds g with chance (1 - g)^A.  Rewards
    of 0 and 1 have the bound B = 1; Gaussian ones have none, but Hoeffding's inequality holds with
    their standard deviation as B.
    """
    bound, arms = family.sigma or 1.0, family.n_actions

    def density_times_level(gap: float) -> float:
        return arms * (1 - gap) ** (arms - 1) * BanditBound(bound, gap).trustworthiness(pulls)

    value, _ = integrate.quad(density_times_level, 0, 1, limit=200)
    return float(value)


def mdp_bound(family: TaskFamily, data: DataConfig) -> MDPBound:
    """Theorem 2 for a family: kappa is the least over all states of all training tasks.

    Raises:
        ConfigError: the family is not tabular.
    """
    tabular = _tabular(family)
    mdps = tabular.mdps(tabular.variants("train"))
    gaps = kappa(policy_q(mdps, _behavior_policy(tabular, data), data.discount))
    bound = float(np.abs(mdps.rewards).max())
    return MDPBound(bound, float(gaps.min()), data.discount)


def theorem_horizon(data: DataConfig) -> int:
    """The theorem's N of a config's: its roll-outs have rewards at t = 0..N, ours N rewards."""
    return data.trust_horizon - 1


def assumption_2(
    experiment: Experiment[Any], discount: float
) -> tuple[list[tuple[str, list[int], list[int]]], int]:
    """Checks Assumption 2 in every state of every distinct task of both splits.

    Returns:
        where it fails (split, the task's parameters, the state's coordinates), and how many states
        were looked at.

    Raises:
        ConfigError: the family is not tabular, or `discount` is outside of (0, 1).
    """
    family = _tabular(make_family(experiment.task))
    policy = _behavior_policy(family, experiment.data)
    failures, checked = [], 0
    for split in SPLITS:
        variants = family.variants(split)
        fails = assumption_2_fails(family.mdps(variants), policy, discount)
        checked += fails.size
        for task, state in np.argwhere(fails):
            cell = family.coordinates[state].tolist()
            failures.append((split, variants[task].tolist(), cell))
    return failures, checked


def _tabular(family: TaskFamily) -> TabularFamily:
    if not isinstance(family, TabularFamily):
        raise ConfigError(
            f"{family.name} has no finite table of states and actions to iterate over"
        )
    return family


def _behavior_policy(family: TabularFamily, data: DataConfig) -> NDArray[np.float64]:
    """(A,): the chance of each action."""
    table = policy_table(data.behavior_policy, family.n_actions)
    return np.bincount(table, minlength=family.n_actions) / len(table)
