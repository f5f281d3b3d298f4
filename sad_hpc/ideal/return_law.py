"""The exact expected weight of DIT's pairs of state and action, by dynamic programming.

A pair of an episode of random play weighs its discounted return-to-go, or a floor if that is
larger.  DIT's exact learner answers for a pair that the context does not show with the law's mean
over the posterior of tasks.
"""

import numpy as np
from numpy.typing import NDArray

from sad_hpc.experiment.behavior_policy import policy_shares
from sad_hpc.experiment.sections import DataConfig, DITConfig
from sad_hpc.tasks.mdps import FiniteMDPs
from sad_hpc.tasks.tabular import TabularFamily

Values = NDArray[np.float64]


def return_law(
    family: TabularFamily, data: DataConfig, dit: DITConfig, mdps: FiniteMDPs
) -> Values | None:
    """Return the expected weight of a random step in each state and action, (M, S, A).

    It is the mean over the T steps of an episode of 1{s_t = s, a_t = a} w_t, without the factor
    lambda.  None where it is not computed: for histories of Q-learning, negative rewards, or a
    floor that a positive return-to-go can be below.

    Args:
        family: family of the tasks.
        data: settings of the episodes.
        dit: discount and floor.
        mdps: M tasks.
    """
    rewards = mdps.outcomes.rewards
    horizon, floor = family.config.horizon, dit.floor or 0.0
    positive = rewards[rewards > 0]
    least = positive.min() * dit.discount ** (horizon - 1) if positive.size else np.inf
    if data.imported_contexts is not None or data.q_learning_steps:
        return None
    if (rewards < 0).any() or floor > least:
        return None
    policy = policy_shares(data.behavior_policy, family.n_actions)
    weights = weights_to_go(mdps, policy, horizon, dit.discount, floor)
    law, present = np.zeros(mdps.sizes), start_shares(family, mdps)
    for weight in weights:
        law += present[:, :, None] * policy * weight
        present = next_shares(family, mdps, policy, present)
    return law / horizon


def weights_to_go(
    mdps: FiniteMDPs, policy: Values, horizon: int, discount: float, floor: float
) -> list[Values]:
    """Return the expected weight of each action at each of T steps, T arrays (M, S, A)."""
    may = mdps.outcomes
    task = np.arange(mdps.sizes[0])[:, None, None, None]
    values, silence = np.zeros(mdps.sizes[:2]), np.ones(mdps.sizes[:2])
    found = []
    for _ in range(horizon):
        returns = mdps.action_values(values, discount)
        # Without a reward up to the end of the episode, the pair weighs the floor.
        later = np.where(may.ends, 1.0, silence[task, may.next_states])
        silent = (may.chances * (may.rewards == 0) * later).sum(axis=-1)
        found.append(returns + floor * silent)
        values, silence = returns @ policy, silent @ policy
    return found[::-1]


def start_shares(family: TabularFamily, mdps: FiniteMDPs) -> Values:
    """Return the probability that an episode begins in a state, (M, S)."""
    starts = family.starts(mdps)
    if isinstance(starts, int):
        return np.tile(np.eye(mdps.sizes[1])[starts], (mdps.sizes[0], 1))
    return starts


def next_shares(family: TabularFamily, mdps: FiniteMDPs, policy: Values, present: Values) -> Values:
    """Return the probability of a state one step later, (M, S); after an end, an episode begins."""
    may = mdps.outcomes
    flow = present[:, :, None, None] * policy[:, None] * may.chances
    task = np.broadcast_to(np.arange(mdps.sizes[0])[:, None, None, None], flow.shape)
    later = np.zeros_like(present)
    np.add.at(later, (task, may.next_states), np.where(may.ends, 0.0, flow))
    ended = np.where(may.ends, flow, 0.0).sum(axis=(1, 2, 3))
    return later + ended[:, None] * start_shares(family, mdps)
