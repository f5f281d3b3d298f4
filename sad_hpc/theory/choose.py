"""N and N_ep by random data alone.

The consensus of two independent labels is the sum over actions of p^2, which is at most the share
of the most frequent label: where that one is right (Assumption 2, and rollouts long enough),
labels are right at least as often.  The cheapest rule with the consensus asked for is taken.
"""

from collections.abc import Sequence

import numpy as np

from sad_hpc.errors import ConfigError
from sad_hpc.experiment.sections import DataConfig
from sad_hpc.tasks.bandit import BanditFamily
from sad_hpc.tasks.base import TaskFamily
from sad_hpc.theory.repeats import Repeats, repeat_labels

QUERY_STATES = 4000
"""Labelled twice for each rule: the consensus is known to 1.5 %, at 95 %."""

HALVINGS = 4
"""N is the context's horizon, halved up to so many times; of bandits also doubled up to thrice."""

EPISODES = tuple(4**power for power in range(7))
"""N_ep of episodic tasks; a bandit's label has one rollout."""


def choose(candidates: Sequence[Repeats], asked: float) -> Repeats:
    """The cheapest that reaches it; else the one that comes nearest."""
    enough = [one for one in candidates if one.consensus >= asked]
    if enough:
        return min(enough, key=lambda one: one.transitions)
    return max(candidates, key=lambda one: one.consensus)


def candidates(
    family: TaskFamily, data: DataConfig, asked: float, episodes: Sequence[int] = EPISODES
) -> list[Repeats]:
    """Rules for a family: for each N more and more rollouts, until they are enough or too many.

    Args:
        family: of the tasks.
        data: everything else about labels.
        asked: the consensus that is asked for, in (0, 1).
        episodes: the N_ep to try, ascending; bandits have one rollout.

    Raises:
        ConfigError: `asked` is outside of (0, 1), or right labels differ at random.
    """
    if not 0 < asked < 1:
        raise ConfigError(f"a consensus of {asked:g} is none: it must lie between 0 and 1")
    if data.score == "fastest" and data.tie_break == "random":
        raise ConfigError(
            "labels of data.score=fastest with data.tie_break=random may differ and both be right: "
            "their consensus has no meaning.  Use data.tie_break=lowest, or choose N by hand"
        )
    tried: list[Repeats] = []
    cheapest = np.inf
    for horizon in _horizons(family):
        for count in (1,) if isinstance(family, BanditFamily) else episodes:
            rule = {"trust_horizon": horizon, "episodes_per_action": count}
            one = repeat_labels(family, data.model_copy(update=rule), QUERY_STATES)
            tried.append(one)
            if one.consensus >= asked:
                cheapest = min(cheapest, one.transitions)
            if one.transitions >= cheapest:
                break
    return tried


def _horizons(family: TaskFamily) -> list[int]:
    longest = family.config.horizon * (8 if isinstance(family, BanditFamily) else 1)
    halvings = HALVINGS + 3 if isinstance(family, BanditFamily) else HALVINGS
    return sorted({-(-longest // 2**power) for power in range(halvings + 1)})
