"""N and N_ep by random data alone.

The consensus of two independent labels is the sum over actions of p^2, which is at most the share
of the most frequent label: where that one is right (Assumption 2, and rollouts long enough),
labels are right at least as often.  The cheapest rule with the consensus asked for is taken.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sad_hpc.distill.labels import NO_LABEL
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


@dataclass(frozen=True)
class Candidate:
    """A rule that was tried."""

    trust_horizon: int
    """N."""
    episodes_per_action: int
    """N_ep."""
    repeats: Repeats

    @property
    def consensus(self) -> float:
        """See `Repeats`."""
        return self.repeats.consensus

    @property
    def spent(self) -> float:
        """Transitions of this trial: two labels of each query state."""
        return 2 * len(self.repeats.first) * self.repeats.transitions

    @property
    def coverage(self) -> float:
        """The share of query states that have a label."""
        return float((self.repeats.first != NO_LABEL).mean())

    def right(self, family: TaskFamily) -> float:
        """The share of query states whose label is optimal: for reports, the choice knows nothing
        of it."""
        known = self.repeats.first != NO_LABEL
        parameters, states = self.repeats.parameters[known], self.repeats.query_states[known]
        optimal = family.are_optimal(parameters, states, self.repeats.first[known])
        return float(optimal.sum() / len(known))


def choose(candidates: Sequence[Candidate], asked: float) -> Candidate:
    """The cheapest that reaches it; else the one that comes nearest."""
    enough = [one for one in candidates if one.consensus >= asked]
    if enough:
        return min(enough, key=lambda one: one.repeats.transitions)
    return max(candidates, key=lambda one: one.consensus)


def candidates(
    family: TaskFamily, data: DataConfig, asked: float, episodes: Sequence[int] = EPISODES
) -> list[Candidate]:
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
    if data.score == "best" and data.tie_break == "random":
        raise ConfigError(
            "labels of data.score=best with data.tie_break=random may differ and both be right, so "
            "that their consensus says nothing: use data.tie_break=lowest, or choose N by hand"
        )
    tried: list[Candidate] = []
    cheapest = np.inf
    for horizon in _horizons(family):
        for count in (1,) if isinstance(family, BanditFamily) else episodes:
            rule = {"trust_horizon": horizon, "episodes_per_action": count}
            one = Candidate(
                repeats=repeat_labels(family, data.model_copy(update=rule), QUERY_STATES), **rule
            )
            tried.append(one)
            if one.consensus >= asked:
                cheapest = min(cheapest, one.repeats.transitions)
            if one.repeats.transitions >= cheapest:
                break
    return tried


def _horizons(family: TaskFamily) -> list[int]:
    longest = family.config.horizon * (8 if isinstance(family, BanditFamily) else 1)
    halvings = HALVINGS + 3 if isinstance(family, BanditFamily) else HALVINGS
    return sorted({-(-longest // 2**power) for power in range(halvings + 1)})
