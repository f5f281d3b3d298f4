"""diagnosis.png: online returns by the rewards in the context, and contexts without a reward.

The Bayes-optimal learner stays at a goal that it has found.  If a model's return falls with the
number of rewards, its training lacks such contexts.  If many of its contexts have no reward, it
does not explore.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sad_hpc.aggregate.canvas import (
    Style,
    count_along,
    draw_band,
    drawing_panels,
    reference_style,
    row_label,
)
from sad_hpc.aggregate.series import is_learner
from sad_hpc.evaluate.result import ModeResult, Result

UPPER = (0, 2, 8, 20, 30, 40, 60)
"""Largest number of rewards in each bin except the last, which ends at the context's length."""
WARM_UP = 10
"""First episodes, in which an agent still searches; the returns exclude them."""


@dataclass(frozen=True)
class Diagnosis:
    """Online returns and rewards in contexts of one row or Bayes-optimal learner."""

    policy: str
    is_reference: bool
    seeds: tuple[int, ...]
    returns: NDArray[np.float64]
    """(bins,): the mean over all (seed, task, episode) of a bin; NaN in an empty bin."""
    shares: NDArray[np.float64]
    """(bins,): fraction of these entries in each bin."""
    without_reward: NDArray[np.float64]
    """(seeds, E): share of contexts without any reward, by episode."""

    @property
    def first(self) -> int:
        """Number of first episodes that the returns exclude."""
        return warm_up(self.without_reward.shape[1])


def warm_up(episodes: int) -> int:
    """Return WARM_UP, or half of the episodes of a short evaluation."""
    return min(WARM_UP, episodes // 2)


def bins(horizon: int) -> list[tuple[int, int]]:
    """Return the first and last number of rewards in each bin, for contexts of T transitions."""
    ends = [*(end for end in UPPER if end < horizon), horizon]
    return list(zip([0, *(end + 1 for end in ends[:-1])], ends, strict=True))


def bin_names(horizon: int) -> list[str]:
    """Return names such as `0`, `1-2` and `41-49`."""
    return [str(a) if a == b else f"{a}-{b}" for a, b in bins(horizon)]


def diagnose(results: Sequence[Result], horizon: int) -> list[Diagnosis]:
    """Return the diagnoses of all rows, then of Bayes-optimal learners.

    The list is empty if rewards in contexts were not counted.

    Args:
        results: the results in the order of the rows.
        horizon: T, the largest number of rewards in a context.
    """
    found: dict[tuple[str, bool], dict[int, tuple[NDArray, NDArray]]] = {}
    for result in results:
        for policy, is_reference, values, rewards in _policies(result.row, result.modes["online"]):
            # All rows of a seed have the same Bayes-optimal learner.
            seeds = found.setdefault((policy, is_reference), {})
            seeds.setdefault(result.seed, (values, rewards))
    return [
        _diagnosis(policy, is_reference, found[policy, is_reference], horizon)
        for policy, is_reference in sorted(found, key=lambda each: each[1])
    ]


def _policies(row: str, online: ModeResult) -> Iterator[tuple[str, bool, NDArray, NDArray]]:
    """Yield name, whether it is a reference, values and context rewards of each policy."""
    if online.context_rewards is not None:
        yield row, False, online.values, online.context_rewards
    for name, rewards in online.reference_context_rewards.items():
        if is_learner(name):
            yield name, True, online.references[name], rewards


def _diagnosis(
    policy: str,
    is_reference: bool,
    seeds: dict[int, tuple[NDArray, NDArray]],
    horizon: int,
) -> Diagnosis:
    first = warm_up(next(iter(seeds.values()))[0].shape[1])
    values = np.concatenate([each[:, first:].ravel() for each, _ in seeds.values()])
    rewards = np.concatenate([counted[:, first:].ravel() for _, counted in seeds.values()])
    # A learner that remembers all episodes may have more than T rewards.
    places = np.searchsorted([end for _, end in bins(horizon)], np.minimum(rewards, horizon))
    counts = np.bincount(places, minlength=len(bins(horizon)))
    totals = np.bincount(places, weights=values, minlength=len(counts))
    with np.errstate(invalid="ignore"):
        returns = totals / counts
    without = np.stack([(counted == 0).mean(axis=0) for _, counted in seeds.values()])
    return Diagnosis(policy, is_reference, tuple(seeds), returns, counts / counts.sum(), without)


HEADER = ["row", "rewarded transitions in the context", "mean return", "share of contexts"]


def diagnosis_cells(found: Sequence[Diagnosis], horizon: int) -> list[list[str]]:
    """Return the lines below HEADER, one for each policy and non-empty bin."""
    return [
        [one.policy, name, f"{mean:.2f}", f"{100 * share:.1f} %"]
        for one in found
        for name, mean, share in zip(bin_names(horizon), one.returns, one.shares, strict=True)
        if share
    ]


def draw_diagnosis(
    path: Path, title: str, found: Sequence[Diagnosis], horizon: int, styles: Mapping[str, Style]
) -> None:
    """Draw diagnosis.png.

    The left panel shows the mean return after the first episodes by bin, the right panel the share
    of contexts without a reward by episode.

    Args:
        path: the picture to write.
        title: the environment's title.
        found: the policies to draw.
        horizon: T of `bins`.
        styles: the styles of the experiment's rows.
    """
    names = bin_names(horizon)
    with drawing_panels(path, 2, f"{title}, rewards in online contexts") as (left, right):
        for one in found:
            episodes = np.arange(1, one.without_reward.shape[1] + 1)
            if one.is_reference:
                look = reference_style(one.policy)
                left.plot(range(len(names)), one.returns, marker="o", ms=3, **look)
                right.plot(episodes, 100 * one.without_reward.mean(axis=0), **look)
            else:
                style, label = styles[one.policy], row_label(one.policy, len(one.seeds))
                draw_band(left, np.arange(len(names)), one.returns[None], style, label)
                draw_band(right, episodes, 100 * one.without_reward, style, label)
        left.set_xticks(range(len(names)), names, rotation=30)
        left.set_xlabel("rewarded transitions in the context")
        left.set_ylabel(f"return after episode {found[0].first} (reward per episode)")
        left.set_ylim(bottom=0)
        count_along(right, "episode")
        right.set_ylabel("contexts without a reward (%)")
        right.set_ylim(0, 102)
