"""The exact distribution of labels whose rollouts share their random actions.

With `data.common_actions` the rollouts of all first actions are one Markov chain: A agents that
take the same action at each step.  Agents merge where walls stop them, so few joint places are
reachable, and dynamic programming over them is exact.
"""

import numpy as np
from numpy.typing import NDArray

from sad_hpc.tasks.mdps import FiniteMDPs

MAX_WORK = 100_000
"""Largest product of tasks, states and steps for which the distribution is computed, in seconds."""
MAX_KEY = 2**62


def can_enumerate(mdps: FiniteMDPs, steps: int) -> bool:
    """Return whether `common_actions_law` is feasible: not too much work, and certain outcomes."""
    n_tasks, n_states, n_actions = mdps.sizes
    fits = (n_states + 1) ** (n_actions + 1) < MAX_KEY and n_tasks * n_states * steps <= MAX_WORK
    return fits and mdps.outcomes.rewards.shape[-1] == 1


def common_actions_law(
    mdps: FiniteMDPs, policy: NDArray[np.float64], steps: int, random_ties: bool
) -> NDArray[np.float64]:
    """Return the joint distribution of query state and label in each task, (M, S, A).

    One rollout for each action, with certain steps and sparse rewards; see `can_enumerate`.

    Args:
        mdps: M MDPs.
        policy: (A,) probabilities of the behavior policy.
        steps: N.
        random_ties: whether ties are broken at random instead of by the lowest action.
    """
    may = mdps.outcomes
    parts = (may.next_states[..., 0], may.rewards[..., 0] > 0, may.ends[..., 0])
    chances = [_chances(*task, policy, steps, random_ties) for task in zip(*parts, strict=True)]
    joint = np.stack(chances) * mdps.occupied[:, :, None]
    return joint / joint.sum(axis=(1, 2), keepdims=True)


def _chances(
    next_states: NDArray[np.uint16],
    paid: NDArray[np.bool_],
    ends: NDArray[np.bool_],
    policy: NDArray[np.float64],
    steps: int,
    random_ties: bool,
) -> NDArray[np.float64]:
    """Return the probability that a query state is accepted with each label, (S, A)."""
    n_states, n_actions = paid.shape
    # State S: the episode has ended without a reward.
    after = np.where(ends, n_states, next_states).astype(np.int64)
    after = np.concatenate([after, np.full((1, n_actions), n_states)])
    pays = np.concatenate([paid, np.zeros((1, n_actions), np.bool_)])
    chances = np.zeros((n_states, n_actions))
    # Entries: a query state, the agents' places (A,), and the probability to be there unpaid.
    queries, weights = np.arange(n_states), np.ones(n_states)
    going = _settle(chances, queries, pays[:-1], weights, random_ties)
    queries, places, weights = queries[going], after[:-1][going], weights[going]
    for _ in range(steps - 1):
        moved = []
        for action, chance in enumerate(policy):
            reached = pays[places, action]
            going = _settle(chances, queries, reached, weights * chance, random_ties)
            moved.append((queries[going], after[places[going], action], weights[going] * chance))
        queries, places, weights = map(np.concatenate, zip(*moved, strict=True))
        queries, places, weights = _merged(queries, places, weights, n_states + 1)
    return chances


def _settle(
    chances: NDArray[np.float64],
    queries: NDArray[np.int64],
    reached: NDArray[np.bool_],
    weights: NDArray[np.float64],
    random_ties: bool,
) -> NDArray[np.bool_]:
    """Add the labels of entries in which agents are paid; return which entries (n,) go on.

    Args:
        chances: (S, A), to be added to.
        queries: (n,) query states.
        reached: (n, A), which agents are paid.
        weights: (n,) probabilities.
        random_ties: see `common_actions_law`.
    """
    won = reached if random_ties else reached & (reached.cumsum(axis=1) == 1)
    np.add.at(chances, queries, won * (weights / np.maximum(won.sum(axis=1), 1))[:, None])
    return np.asarray(~reached.any(axis=1))


def _merged(
    queries: NDArray[np.int64], places: NDArray[np.int64], weights: NDArray[np.float64], base: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    """Sum the weights of entries with equal query states and places."""
    keys = queries.copy()
    for agent in places.T:
        keys = keys * base + agent
    _, first, group = np.unique(keys, return_index=True, return_inverse=True)
    return queries[first], places[first], np.bincount(group, weights).astype(np.float64)
