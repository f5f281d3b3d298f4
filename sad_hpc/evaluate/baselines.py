"""Reference policies, computed exactly by backward induction."""

import numpy as np
from numpy.typing import NDArray

from sad_hpc.tasks.base import TabularMDPs


def optimal_returns(mdps: TabularMDPs, horizon: int, start_state: int) -> NDArray[np.float32]:
    """(M,): the largest return of T steps from the start state."""
    values = np.zeros(mdps.rewards.shape[:2])
    for _ in range(horizon):
        values = _action_values(mdps, values).max(axis=-1)
    return values[:, start_state].astype(np.float32)


def policy_returns(
    mdps: TabularMDPs, horizon: int, start_state: int, policy: NDArray[np.float64]
) -> NDArray[np.float32]:
    """(M,): the expected return of T steps of one distribution (A,) over actions."""
    values = np.zeros(mdps.rewards.shape[:2])
    for _ in range(horizon):
        values = _action_values(mdps, values) @ policy
    return values[:, start_state].astype(np.float32)


def _action_values(mdps: TabularMDPs, values: NDArray[np.float64]) -> NDArray[np.float64]:
    """(M, S, A): the reward of an action plus the value (M, S) of the state that it leads to."""
    mdp = np.arange(len(values))[:, None, None]
    return mdps.rewards + values[mdp, mdps.next_states]
