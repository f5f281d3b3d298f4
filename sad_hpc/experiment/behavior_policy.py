"""The behavior policy: one fixed distribution over actions, as a table to sample uniformly."""

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sad_hpc.errors import ConfigError
from sad_hpc.experiment.numbers import action_dtype

MAX_DENOMINATOR = 1000


def policy_table(policy: str | Sequence[float], n_actions: int) -> NDArray[Any]:
    """Return (K,) actions whose uniform draws follow the policy exactly.

    Args:
        policy: `uniform`, or a probability for each action, in multiples of 1/1000 or other
            fractions with denominators up to 1000.
        n_actions: number of actions, A.

    Raises:
        ConfigError: the probabilities are negative, do not add up to 1, or need larger
            denominators; or the family has too many actions.
    """
    if policy == "uniform":
        return np.arange(n_actions, dtype=action_dtype(n_actions))
    shares = [Fraction(p).limit_denominator(MAX_DENOMINATOR) for p in policy]
    size = math.lcm(*(share.denominator for share in shares))
    if min(shares) < 0 or sum(shares) != 1 or size > MAX_DENOMINATOR**2:
        raise ConfigError(
            f"data.behavior_policy={list(policy)} must be {n_actions} probabilities that add up to "
            f"1, in fractions with denominators up to {MAX_DENOMINATOR}, such as 0.125 or 0.2"
        )
    counts = [int(share * size) for share in shares]
    return np.repeat(np.arange(n_actions, dtype=action_dtype(n_actions)), counts)


def policy_shares(policy: str | Sequence[float], n_actions: int) -> NDArray[np.float64]:
    """Return the (A,) probabilities of the actions under a policy; see `policy_table`."""
    table = policy_table(policy, n_actions)
    return np.bincount(table, minlength=n_actions) / len(table)
