"""The weights of DIT's pairs of state and action, from the returns after them."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sad_hpc.experiment.sections import DITConfig
from sad_hpc.tasks.bandit import BanditFamily
from sad_hpc.tasks.base import Arrays, TaskFamily, jumps


def dit_weights(
    family: TaskFamily, settings: DITConfig, arrays: Arrays, least: float | None = None
) -> NDArray[np.float32]:
    """Return the weights of DIT's pairs of state and action, (n, T).

    Args:
        family: in a bandit, a pull is an episode of one step, and its return is its own reward.
        settings: lambda, the discount and the floor.
        arrays: rewards (n, T) and, if episodes can end, ends (n, T).
        least: the return of weight 0; None: `least_return` of these arrays.
    """
    returns = pair_returns(family, settings, arrays)
    if least is None:
        least = least_return(float(returns.sum()), float(returns.min(initial=0.0)))
    weights = returns - np.float32(least)
    if settings.floor is not None:
        weights = np.maximum(weights, np.float32(settings.floor))
    return np.float32(settings.weight) * weights


def least_return(total: float, lowest: float) -> float:
    """Return the return of weight 0, from the sum of all returns and the lowest one.

    It is 0, unless the sum is negative: a negative weight would penalize actions of the data.  The
    paper has no such tasks.
    """
    return lowest if total < 0 else 0.0


def pair_returns(family: TaskFamily, settings: DITConfig, arrays: Arrays) -> NDArray[np.float32]:
    """Return the return of each pair, (n, T); see `dit_weights`."""
    returns = arrays["rewards"].astype(np.float32)
    if isinstance(family, BanditFamily):
        return returns
    whole = (-1, family.config.horizon)  # a context may have several episodes of T steps
    ends = arrays.get("ends")
    cut = None if ends is None else ends.reshape(whole)
    return return_to_go(returns.reshape(whole), settings.discount, cut).reshape(returns.shape)


def with_cuts(arrays: Arrays) -> Arrays:
    """Return contexts whose `ends` are also 1 before a state that does not follow.

    An episode of imported contexts may be truncated there, and no return goes on in the next one.
    A cut before an equal state is not seen.

    Args:
        arrays: states and next_states (n, T, ...), rewards and, if episodes can end, ends (n, T).
    """
    ends = np.zeros(arrays["rewards"].shape, np.uint8) | arrays.get("ends", np.uint8(0))
    ends[:, :-1] |= jumps(arrays["states"], arrays["next_states"])
    return {**arrays, "ends": ends}


def return_to_go(
    rewards: NDArray[np.generic], discount: float, ends: NDArray[Any] | None = None
) -> NDArray[np.float32]:
    """Return the discounted return-to-go of each step, (n, T), for rewards (n, T).

    It is the sum over t' >= t of discount^(t' - t) x reward_t', up to the next of `ends` (n, T).
    """
    result = rewards.astype(np.float32)
    for t in range(result.shape[1] - 2, -1, -1):
        later = result[:, t + 1] if ends is None else result[:, t + 1] * (ends[:, t] == 0)
        result[:, t] += np.float32(discount) * later
    return result
