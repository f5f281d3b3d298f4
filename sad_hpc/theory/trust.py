"""What the theorems promise for a config, and beside it how often its labels are right."""

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import integrate

from sad_hpc.distill import make_block
from sad_hpc.errors import ConfigError
from sad_hpc.experiment.behavior_policy import policy_shares
from sad_hpc.experiment.experiment import Experiment
from sad_hpc.experiment.sections import DataConfig
from sad_hpc.tasks.bandit import BanditFamily
from sad_hpc.tasks.base import SPLITS, TaskFamily, make_family
from sad_hpc.tasks.mdps import FiniteMDPs
from sad_hpc.tasks.q_tables import FINE_THRESHOLD, QTables, optimal_q, policy_q
from sad_hpc.tasks.tabular import TabularFamily
from sad_hpc.theory.bellman import agreement, kappa
from sad_hpc.theory.bounds import BanditBound, MDPBound

SIMULATED_TASKS = 20_000


@dataclass(frozen=True)
class Trust:
    """Of one choice of N and N_ep."""

    promised: float | None
    """The theorem's 1 - delta; None: it promises nothing."""
    silence: str
    """Why it promises nothing."""
    bound: MDPBound | None
    """Theorem 2 for the config's MDPs, where it has a kappa."""
    labels: int
    """How many were simulated."""
    measured: float
    """Share of them that are optimal actions in their query states."""
    transitions: float
    """Environment transitions that a label takes."""


def trust(experiment: Experiment[Any]) -> Trust:
    """The theorem's level for an experiment's labels, and their accuracy in simulation.

    Theorem 2 is about the mean return of N steps, by which Algorithm 3 chooses; where rewards are
    sparse, Algorithm 5 stops a rollout at its first reward, and the level is a guide.

    Raises:
        ConfigError: the family is neither a bandit nor tabular.
    """
    family, data = make_family(experiment.task), experiment.data
    promised, silence, bound = _promise(family, data)
    tasks = next(n for n in itertools.count(SIMULATED_TASKS, SIMULATED_TASKS)
                 if family.n_tasks("train", n) >= SIMULATED_TASKS)  # fmt: skip
    # One label a task: labels of one task have its difficulty in common.
    block_of_all = {"tasks": tasks, "block_tasks": SIMULATED_TASKS, "queries_per_task": 1}
    block = make_block(family, data.model_copy(update=block_of_all), "train", 0)
    right = family.are_optimal(
        block.arrays["tasks/parameters"],
        block.arrays["labels/sad/query_states"],
        block.arrays["labels/sad/actions"],
    )
    transitions = block.transitions["labels_sad"] / len(right)
    return Trust(promised, silence, bound, len(right), float(right.mean()), transitions)


def _promise(family: TaskFamily, data: DataConfig) -> tuple[float | None, str, MDPBound | None]:
    """A theorem's 1 - delta, or None and the reason; and Theorem 2."""
    if isinstance(family, BanditFamily):
        return expected_trustworthiness(family, data.trust_horizon), "", None
    if data.score == "fastest":
        return None, "it is about means of rollouts, not about the best of them", None
    mdps, random, optimal = _q_tables(_tabular(family), data, "train", data.discount)
    if agreement(random, optimal).misled.any():
        return None, "the random policy's best actions are not all optimal (Assumption 2)", None
    bound, horizon = mdp_bound(mdps, random), theorem_horizon(data)
    if horizon < bound.least_horizon:
        least = bound.least_horizon - horizon + data.trust_horizon
        return None, f"it asks for an N of {least:,} or more", bound
    return bound.trustworthiness(data.episodes_per_action, horizon), "", bound


def expected_trustworthiness(family: BanditFamily, pulls: int) -> float:
    """Theorem 1's level, on average over the family's tasks.

    See `gap_quantile` for the law of their gaps.
    """
    bound, arms = reward_bound(family), family.n_actions

    def density_times_level(gap: float) -> float:
        return arms * (1 - gap) ** (arms - 1) * BanditBound(bound, gap).trustworthiness(pulls)

    value, _ = integrate.quad(density_times_level, 0, 1, limit=200)
    return float(value)


def gap_quantile(family: BanditFamily, share: float) -> float:
    """The gap that a share of a family's tasks do not exceed.

    The gap between the two best of A means from U[0, 1] exceeds g with chance (1 - g)^A.
    """
    return float(1 - (1 - share) ** (1 / family.n_actions))


def reward_bound(family: BanditFamily) -> float:
    """Theorem 1's B: 1 for rewards of 0 and 1; Gaussian ones have no bound, but Hoeffding's
    inequality holds with their standard deviation."""
    return family.sigma or 1.0


def mdp_bound(mdps: FiniteMDPs, random: QTables) -> MDPBound:
    """Theorem 2 for MDPs and Q under the random policy: kappa is the least over all states of all.

    Raises:
        ConfigError: kappa is too small to be computed.
    """
    return MDPBound(
        float(np.abs(mdps.outcomes.rewards).max()), float(kappa(random).min()), random.discount
    )


def theorem_horizon(data: DataConfig) -> int:
    """The theorem's N of a config's: its rollouts have rewards at t = 0..N, ours N rewards."""
    return data.trust_horizon - 1


@dataclass(frozen=True)
class Assumption2:
    """What became of the states of all distinct tasks of both splits."""

    checked: int
    unequal: int
    """Those in which the two sets of best actions differ."""
    misled: list[tuple[str, list[int], list[int]]]
    """Those in which a best action under the random policy is not optimal: split, the task's
    parameters, the state's coordinates."""


def assumption_2(experiment: Experiment[Any], discount: float) -> Assumption2:
    """Check Assumption 2 in every state of every distinct task.

    Raises:
        ConfigError: the family is not tabular, or `discount` is outside of (0, 1).
    """
    family = _tabular(make_family(experiment.task))
    misled, checked, unequal = [], 0, 0
    for split in SPLITS:
        found = agreement(*_q_tables(family, experiment.data, split, discount)[1:])
        checked, unequal = checked + found.misled.size, unequal + int(found.unequal.sum())
        for task, state in np.argwhere(found.misled):
            parameters = family.distinct_tasks(split)[task].tolist()
            misled.append((split, parameters, family.coordinates[state].tolist()))
    return Assumption2(checked, unequal, misled)


def _tabular(family: TaskFamily) -> TabularFamily:
    if not isinstance(family, TabularFamily):
        raise ConfigError(
            f"{family.name} has no finite table of states and actions to iterate over"
        )
    return family


def _q_tables(
    family: TabularFamily, data: DataConfig, split: str, discount: float
) -> tuple[FiniteMDPs, QTables, QTables]:
    """A split's distinct MDPs, and their Q under the behavior policy and the optimal one."""
    mdps = family.mdps(family.distinct_tasks(split))
    policy = policy_shares(data.behavior_policy, family.n_actions)
    random = policy_q(mdps, policy, discount, FINE_THRESHOLD)
    return mdps, random, optimal_q(mdps, discount, FINE_THRESHOLD)
