"""The exact distribution of labels whose rollouts share their random actions.

With `data.common_actions` the rollouts of all first actions are one Markov chain: A agents that
take the same action at each step.  In an empty room they keep their distances until a wall stops
some of them, so few joint places can be reached, and dynamic programming over them is exact.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sad_hpc.tasks.mdps import FiniteMDPs

MAX_WORK = 1_000_000
"""Largest product of tasks, states and steps for which the distribution is computed."""
MAX_PLACES = 20_000
"""Largest number of joint places of a task; rooms with inner walls have more."""
MAX_KEY = 2**62


def common_actions_chances(
    mdps: FiniteMDPs, policy: NDArray[np.float64], steps: int, random_ties: bool
) -> NDArray[np.float64] | None:
    """Return the probability that a query state is accepted with each label, (M, S, A).

    One rollout for each action, with certain steps and sparse rewards.  None if steps are random,
    or if it would take more than MAX_WORK or MAX_PLACES.

    Args:
        mdps: M MDPs.
        policy: (A,) probabilities of the behavior policy.
        steps: N.
        random_ties: whether ties are broken at random instead of by the lowest action.
    """
    may, (n_tasks, n_states, n_actions) = mdps.outcomes, mdps.sizes
    if may.rewards.shape[-1] > 1 or n_tasks * n_states * steps > MAX_WORK:
        return None
    if (n_states + 1) ** n_actions >= MAX_KEY:
        return None
    parts = (may.next_states[..., 0], may.rewards[..., 0] > 0, may.ends[..., 0])
    chances = []
    for task in zip(*parts, strict=True):
        found = _chances(*task, policy, steps, random_ties)
        if found is None:
            return None
        chances.append(found)
    return np.stack(chances)


def _chances(
    next_states: NDArray[np.uint16],
    paid: NDArray[np.bool_],
    ends: NDArray[np.bool_],
    policy: NDArray[np.float64],
    steps: int,
    random_ties: bool,
) -> NDArray[np.float64] | None:
    """Return `common_actions_chances` of one task, (S, A), from its tables (S, A)."""
    n_states, n_actions = paid.shape
    # State S: the episode has ended without a reward.
    after = np.where(ends, n_states, next_states).astype(np.int64)
    after = np.concatenate([after, np.full((1, n_actions), n_states)])
    pays = np.concatenate([paid, np.zeros((1, n_actions), np.bool_)])
    if (found := _reachable(after)) is None:
        return None
    places, keys = found

    def step(reached: NDArray[np.bool_], moved: NDArray[np.int64]) -> tuple[NDArray[Any], ...]:
        """Return the labels (n, A) of a joint step, whether it has none (n, 1), and its place."""
        going = np.asarray(~reached.any(axis=1, keepdims=True))
        place = np.searchsorted(keys, _keys(moved, n_states))
        return _labels(reached, random_ties), going, place

    further = [step(pays[places, u], after[places, u]) for u in range(n_actions)]
    chances = np.zeros((len(places), n_actions))  # of labels within k more steps
    for _ in range(steps - 1):
        chances = sum(
            chance * (labels + going * chances[place])
            for chance, (labels, going, place) in zip(policy, further, strict=True)
        )
    labels, going, place = step(pays[:-1], after[:-1])
    return np.asarray(labels + going * chances[place])


def _reachable(after: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]] | None:
    """Return the joint places (R, A) of the agents after their first actions, with sorted keys.

    None above MAX_PLACES.
    """
    ended, n_actions = len(after) - 1, after.shape[1]
    keys, first = np.unique(_keys(after[:-1], ended), return_index=True)
    places = new = after[:-1][first]
    while len(new):
        if len(places) > MAX_PLACES:
            return None
        moved = np.concatenate([after[new, u] for u in range(n_actions)])
        found = np.concatenate([places, moved])
        n_known = len(places)
        keys, first = np.unique(_keys(found, ended), return_index=True)
        places, new = found[first], found[first[first >= n_known]]
    return places, keys


def _keys(places: NDArray[np.int64], ended: int) -> NDArray[np.int64]:
    """Return a number for each joint place, from (n, A) agents in states 0 to `ended`."""
    keys = np.zeros(len(places), np.int64)
    for agent in places.T:
        keys = keys * (ended + 1) + agent
    return keys


def _labels(reached: NDArray[np.bool_], random_ties: bool) -> NDArray[np.float64]:
    """Return the probabilities of labels (n, A), 0 without one, from the agents that are paid."""
    won = reached if random_ties else reached & (reached.cumsum(axis=1) == 1)
    return won / np.maximum(won.sum(axis=1, keepdims=True), 1)
