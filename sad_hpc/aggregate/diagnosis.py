"""Where online returns are lost: by what the context shows, and how often it shows nothing.

An ideal learner that has found the goal stays at it, whatever else its context shows.  A model
whose return falls with the number of rewards has not met such contexts in training; one with many
contexts without any reward does not explore.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sad_hpc.aggregate.series import is_ideal
from sad_hpc.evaluate.result import ModeResult, Result

UPPER = (0, 2, 8, 20, 30, 40, 60)
"""Largest number of rewards in each bin but the last, which goes to the context's length."""
WARM_UP = 10
"""Episodes that do not count for the returns: an agent is still searching."""


@dataclass(frozen=True)
class Diagnosis:
    """One row, or an ideal learner, online."""

    policy: str
    is_reference: bool
    seeds: tuple[int, ...]
    returns: NDArray[np.float64]
    """(bins,): the mean over all (seed, task, episode) of a bin; NaN over none."""
    shares: NDArray[np.float64]
    """(bins,): how many of these entries are in each bin, as a fraction."""
    without_reward: NDArray[np.float64]
    """(seeds, E): share of contexts without any reward, by episode."""


def bins(horizon: int) -> list[tuple[int, int]]:
    """First and last number of rewards in each bin, for contexts of T transitions."""
    ends = [*(end for end in UPPER if end < horizon), horizon]
    return list(zip([0, *(end + 1 for end in ends[:-1])], ends, strict=True))


def bin_names(horizon: int) -> list[str]:
    """Such as `0`, `1-2` and `41-49`."""
    return [str(a) if a == b else f"{a}-{b}" for a, b in bins(horizon)]


def diagnose(results: Sequence[Result], horizon: int) -> list[Diagnosis]:
    """The diagnosis of every row, and then of ideal learners; none where contexts have no rewards.

    Args:
        results: in the order of the rows.
        horizon: T, the most rewards that a context can show.
    """
    found: dict[tuple[str, bool], dict[int, tuple[NDArray, NDArray]]] = {}
    for result in results:
        for policy, is_reference, values, rewards in _policies(
            result.method, result.modes["online"]
        ):
            # An ideal learner is the same beside all rows of a seed.
            seeds = found.setdefault((policy, is_reference), {})
            seeds.setdefault(result.seed, (values, rewards))
    return [
        _diagnosis(policy, is_reference, found[policy, is_reference], horizon)
        for policy, is_reference in sorted(found, key=lambda each: each[1])
    ]


def _policies(row: str, online: ModeResult) -> Iterator[tuple[str, bool, NDArray, NDArray]]:
    """Name, whether it is a reference, values and context rewards of each policy of a file."""
    if online.context_rewards is not None:
        yield row, False, online.values, online.context_rewards
    for name, rewards in online.reference_context_rewards.items():
        if is_ideal(name):
            yield name, True, online.references[name], rewards


def _diagnosis(
    policy: str,
    is_reference: bool,
    seeds: dict[int, tuple[NDArray, NDArray]],
    horizon: int,
) -> Diagnosis:
    # Of very short evaluations the last half counts.
    first = min(WARM_UP, next(iter(seeds.values()))[0].shape[1] // 2)
    values = np.concatenate([each[:, first:].ravel() for each, _ in seeds.values()])
    rewards = np.concatenate([counted[:, first:].ravel() for _, counted in seeds.values()])
    # An ideal learner that remembers everything may have seen more than T.
    places = np.searchsorted([end for _, end in bins(horizon)], np.minimum(rewards, horizon))
    counts = np.bincount(places, minlength=len(bins(horizon)))
    totals = np.bincount(places, weights=values, minlength=len(counts))
    with np.errstate(invalid="ignore"):
        returns = totals / counts
    without = np.stack([(counted == 0).mean(axis=0) for _, counted in seeds.values()])
    return Diagnosis(policy, is_reference, tuple(seeds), returns, counts / counts.sum(), without)


def diagnosis_table(found: Sequence[Diagnosis], horizon: int) -> pd.DataFrame:
    """One row a policy and bin: mean return, share of contexts in the bin."""
    rows = [
        (one.policy, name, mean, share)
        for one in found
        for name, mean, share in zip(bin_names(horizon), one.returns, one.shares, strict=True)
    ]
    return pd.DataFrame(rows, columns=["method", "context_rewards", "return", "share_of_contexts"])
