"""The choice of N and N_ep from random data.

The expected consensus of two independent labels is the sum over actions of p^2, which is at most
the share of the most frequent label.  If the most frequent label is optimal (Assumption 2 and long
enough rollouts), label accuracy is at least the consensus.  The choice is the cheapest rule with
the required consensus.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from sad_hpc.errors import ConfigError
from sad_hpc.experiment.experiment import Experiment
from sad_hpc.experiment.sections import DataConfig
from sad_hpc.tasks.bandit import BanditFamily
from sad_hpc.tasks.base import TaskFamily, make_family
from sad_hpc.theory.repeats import Repeats, repeat_labels

QUERY_STATES = 4000
"""Number of query states with two labels for each rule; it sets the error of the consensus."""

HALVINGS = 4
"""Largest number of halvings of T that give N; for bandits T is also doubled up to three times."""

EPISODES = tuple(4**power for power in range(7))
"""Values of N_ep for episodic tasks; a bandit's label has one rollout."""


def choose(candidates: Sequence[Repeats], asked: float) -> Repeats:
    """Return the cheapest candidate with the consensus `asked`, or else the nearest one."""
    enough = [one for one in candidates if one.consensus >= asked]
    if enough:
        return min(enough, key=lambda one: one.transitions)
    return max(candidates, key=lambda one: one.consensus)


def candidates(family: TaskFamily, data: DataConfig, asked: float) -> list[Repeats]:
    """Try rules for a family: for each N, an increasing N_ep until it suffices or costs too much.

    Args:
        family: family of the tasks.
        data: all other settings of labels.
        asked: required consensus, in (0, 1).

    Raises:
        ConfigError: `asked` is outside of (0, 1), or optimal labels differ at random.
    """
    if not 0 < asked < 1:
        raise ConfigError(f"consensus={asked:g} must be between 0 and 1")
    if data.score == "fastest" and data.tie_break == "random":
        raise ConfigError(
            "two labels of data.score=fastest with data.tie_break=random can differ and both be "
            "optimal, so their consensus has no meaning: use data.tie_break=lowest"
        )
    tried: list[Repeats] = []
    cheapest = np.inf
    for horizon in _horizons(family):
        for count in (1,) if isinstance(family, BanditFamily) else EPISODES:
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


def tried_rules(experiment: Experiment[Any], asked: float) -> pd.DataFrame:
    """Try rules for an experiment, and return one row for each in the order of the trials.

    Columns: `N`, `N_ep`, the `consensus` of two labels, the share of query states with a label
    (`labelled`) and with an optimal label (`optimal`), the `transitions` of a label and of the
    trial (`trial_transitions`), and whether the rule is `chosen`.  The choice does not use
    `optimal`, nor N and N_ep of the experiment.

    Raises:
        ConfigError: see `candidates`.
    """
    family = make_family(experiment.task)
    tried = candidates(family, experiment.data, asked)
    chosen = choose(tried, asked)
    rows = [
        {
            "N": one.data.trust_horizon,
            "N_ep": one.data.episodes_per_action,
            "consensus": one.consensus,
            "labelled": one.coverage,
            "optimal": one.right(family),
            "transitions": one.transitions,
            "trial_transitions": one.spent,
            "chosen": one is chosen,
        }
        for one in tried
    ]
    return pd.DataFrame(rows)
