"""Exact returns of reference policies, by backward induction."""

import numpy as np
from numpy.typing import NDArray

from sad_hpc.tasks.mdps import FiniteMDPs, Starts


def optimal_returns(mdps: FiniteMDPs, horizon: int, starts: Starts) -> NDArray[np.float32]:
    """Return the largest expected return of an episode of at most T steps, (M,)."""
    values = np.zeros(mdps.sizes[:2])
    for _ in range(horizon):
        values = mdps.action_values(values).max(axis=-1)
    return _at_start(values, starts)


def policy_returns(
    mdps: FiniteMDPs, horizon: int, starts: Starts, policy: NDArray[np.float64]
) -> NDArray[np.float32]:
    """Return the expected return (M,) of an episode of a policy (A,), the same in every state."""
    values = np.zeros(mdps.sizes[:2])
    for _ in range(horizon):
        values = mdps.action_values(values) @ policy
    return _at_start(values, starts)


def _at_start(values: NDArray[np.float64], starts: Starts) -> NDArray[np.float32]:
    """Return the mean of values (M, S) over start states, (M,)."""
    begun = values[:, starts] if isinstance(starts, int) else (values * starts).sum(axis=1)
    return begun.astype(np.float32)
