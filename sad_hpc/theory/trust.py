"""The theorems' levels for a config, and the measured accuracy of its labels."""

import functools
import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sad_hpc.distill import make_block
from sad_hpc.errors import ConfigError
from sad_hpc.experiment.behavior_policy import policy_shares
from sad_hpc.experiment.experiment import Experiment
from sad_hpc.experiment.per_round import first_round
from sad_hpc.experiment.sections import DataConfig
from sad_hpc.tasks.bandit import BanditFamily
from sad_hpc.tasks.base import SPLITS, TaskFamily, make_family
from sad_hpc.tasks.linear_bandit import LinearBandit
from sad_hpc.tasks.mdps import FiniteMDPs
from sad_hpc.tasks.q_tables import FINE_THRESHOLD, QTables, agreement, kappa, optimal_q, policy_q
from sad_hpc.tasks.tabular import TabularFamily
from sad_hpc.theory.bounds import BanditBound, MDPBound

SIMULATED_TASKS = 20_000
QUANTILES = 2000
"""Number of quantiles of the gap in the mean of Theorem 1's level."""


@dataclass(frozen=True)
class Trust:
    """A theorem's level and the measured label accuracy of one choice of N and N_ep."""

    promised: float | None
    """The theorem's 1 - delta; None: the theorem does not apply."""
    silence: str
    """Reason why the theorem does not apply."""
    bound: MDPBound | None
    """Theorem 2 for the config's MDPs; None without a kappa."""
    labels: int
    """Number of simulated labels."""
    measured: float
    """Share of optimal labels."""
    transitions: float
    """Mean number of environment transitions of a label."""


def trust(experiment: Experiment[Any]) -> Trust:
    """Return the theorem's level for an experiment's labels, and their accuracy in simulation.

    Theorem 2 is about the mean return of N steps, the score of Algorithm 3.  For Algorithm 5, which
    stops a rollout at its first reward, the level is a guide and not a bound.

    Raises:
        ConfigError: the family is neither a bandit nor tabular.
    """
    family, data = make_family(experiment.task), experiment.data
    promised, silence, bound = _promise(family, data)
    tasks = next(n for n in itertools.count(SIMULATED_TASKS, SIMULATED_TASKS)
                 if family.n_tasks("train", n) >= SIMULATED_TASKS)  # fmt: skip
    # One label for each task, because labels of the same task are not independent.
    block_of_all = {"tasks": tasks, "block_tasks": SIMULATED_TASKS, "queries_per_task": 1}
    block = make_block(family, data.model_copy(update=block_of_all), "train", 0)
    right = family.are_optimal(
        block.arrays["tasks/parameters"],
        block.arrays["labels/sad/query_states"],
        block.arrays["labels/sad/actions"],
    )
    transitions = block.steps["labels_sad"] / len(right)
    return Trust(promised, silence, bound, len(right), float(right.mean()), transitions)


def _promise(family: TaskFamily, data: DataConfig) -> tuple[float | None, str, MDPBound | None]:
    """Return a theorem's 1 - delta, or None and the reason, and Theorem 2's bound."""
    if isinstance(family, BanditFamily):
        return expected_trustworthiness(family, first_round(data.trust_horizon)), "", None
    if data.score == "fastest":
        return None, "it is for data.score=mean, not for the fastest rollout", None
    mdps, random, optimal = _q_tables(_tabular(family), data, "train", first_round(data.discount))
    if agreement(random, optimal).misled.any():
        return None, "the random policy's best actions are not all optimal (Assumption 2)", None
    bound, horizon = mdp_bound(mdps, random), theorem_horizon(data)
    if horizon < bound.least_horizon:
        least = bound.least_horizon - horizon + first_round(data.trust_horizon)
        return None, f"it needs N = {least:,} or more", bound
    return bound.trustworthiness(first_round(data.episodes_per_action), horizon), "", bound


def expected_trustworthiness(family: BanditFamily, pulls: int) -> float:
    """Return Theorem 1's level, averaged over quantiles of the family's gaps."""
    bound, shares = reward_bound(family), (np.arange(QUANTILES) + 0.5) / QUANTILES
    gaps = [gap_quantile(family, share) for share in shares]
    return float(np.mean([BanditBound(bound, gap).trustworthiness(pulls) for gap in gaps]))


def gap_quantile(family: BanditFamily, share: float) -> float:
    """Return a quantile of the gap over a family's tasks.

    The gap between the two best of A means from U[0, 1] exceeds g with probability (1 - g)^A.  That
    of linear bandits is a quantile of drawn tasks.
    """
    if isinstance(family, LinearBandit):
        return float(np.quantile(_drawn_gaps(family), share))
    return float(1 - (1 - share) ** (1 / family.n_actions))


@functools.cache
def _drawn_gaps(family: BanditFamily) -> NDArray[np.float32]:
    """Return the gaps of SIMULATED_TASKS tasks in ascending order."""
    means = np.sort(family.draw_means(SIMULATED_TASKS, np.random.default_rng(0)), axis=1)
    return np.sort(means[:, -1] - means[:, -2])


def reward_bound(family: BanditFamily) -> float:
    """Return B of Theorem 1: 1 for rewards of 0 and 1, or the standard deviation of Gaussian ones.

    Gaussian rewards are unbounded, but Hoeffding's inequality holds with their standard deviation.
    """
    return family.sigma or 1.0


def mdp_bound(mdps: FiniteMDPs, random: QTables) -> MDPBound:
    """Return Theorem 2 for MDPs and the random policy's Q; kappa is the minimum over all states.

    Raises:
        ConfigError: kappa is too small to compute.
    """
    return MDPBound(
        float(np.abs(mdps.outcomes.rewards).max()), float(kappa(random).min()), random.discount
    )


def theorem_horizon(data: DataConfig) -> int:
    """Convert a config's N, a number of rewards, to the theorem's, with rewards at t = 0..N."""
    return first_round(data.trust_horizon) - 1


@dataclass(frozen=True)
class Assumption2:
    """Result of Assumption 2's check in the states of all distinct tasks of both splits."""

    checked: int
    """Number of states."""
    unequal: int
    """Number of states in which the two sets of best actions differ."""
    misled: list[tuple[str, list[int], list[int]]]
    """States in which a best action under the random policy is not optimal: split, the task's
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
        raise ConfigError(f"{family.name} has no table of states and actions: use a tabular family")
    return family


def _q_tables(
    family: TabularFamily, data: DataConfig, split: str, discount: float
) -> tuple[FiniteMDPs, QTables, QTables]:
    """Return a split's distinct MDPs, their Q under the behavior policy, and their optimal Q."""
    mdps = family.mdps(family.distinct_tasks(split))
    policy = policy_shares(data.behavior_policy, family.n_actions)
    random = policy_q(mdps, policy, discount, FINE_THRESHOLD)
    return mdps, random, optimal_q(mdps, discount, FINE_THRESHOLD)
