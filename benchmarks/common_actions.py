"""Quality of SAD's labels in simulators, with independent and with common random actions.

    pip install examples/cheetah_velocity
    python benchmarks/common_actions.py      # writes results/theory/common_actions.csv

In states of random play the action values are measured by many rollouts.  A label's share of the
attainable return is 0 if its value is the mean of the tried actions, and 1 if it is the best.  Both
kinds of labels have the same number of rollouts.  Errors are those over query states.
"""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sad_hpc.distill.labels import LabelRule
from sad_hpc.distill.rollout import Behavior
from sad_hpc.distill.simulated import Distillation
from sad_hpc.experiment.load import load_experiment
from sad_hpc.tasks.base import make_family
from sad_hpc.tasks.simulated import SimulatedFamily
from sad_hpc.theory.table import write_table

ROOT = Path(__file__).parent.parent
CONFIGS = (
    "environments/cartpole",
    "environments/lunar_lander",
    "environments/pendulum",
    "cheetah_velocity/config",
)
N_STATES, RANDOM_STEPS, TRUE_EPISODES, REPEATS, RESAMPLES = 40, 20, 64, 8, 1000


def gains(family: SimulatedFamily, rule: LabelRule) -> tuple[NDArray[np.float64], ...]:
    """Return the attainable gains (n,) of query states over the mean action, and those of labels.

    The labels are those with independent actions, then those with common actions.
    """
    generator = np.random.default_rng(0)
    behavior = Behavior.of(family, np.arange(family.n_actions))
    parameters = family.draw_tasks("train", N_STATES, generator)
    simulators = family.simulators(parameters, generator)
    for _ in range(RANDOM_STEPS):
        simulators.step(behavior.draw(N_STATES, generator))
        simulators.start(np.flatnonzero(simulators.ended), generator)
    candidates, rows = behavior.candidates(N_STATES, rule, generator), np.arange(N_STATES)

    def search(**changes: Any) -> Distillation:
        changed = dataclasses.replace(rule, **changes)
        return Distillation(family, parameters, behavior, None, changed, 1, generator)

    asked = simulators, rows, candidates, rows
    values = search(episodes_per_action=TRUE_EPISODES, common_actions=True).scores(*asked)
    mean = values.mean(axis=1)
    found = [values.max(axis=1) - mean]
    for common in (False, True):
        gained = []
        for _ in range(REPEATS):
            labelling = search(common_actions=common)
            labels = labelling.candidates.best(labelling.scores(*asked), None)
            gained.append(values[rows, labels] - mean)
        found.append(np.mean(gained, axis=0))
    return tuple(found)


def measure(config: str) -> dict[str, object]:
    """Return the line of an environment."""
    experiment = load_experiment(ROOT / "examples" / f"{config}.yaml")
    family = make_family(experiment.task)
    assert isinstance(family, SimulatedFamily)
    rule = LabelRule.of(experiment.data, family.sparse_reward)
    attainable, *gained = gains(family, rule)
    line: dict[str, object] = {
        "config": f"examples/{config}.yaml",
        "trust_horizon": rule.trust_horizon,
        "episodes_per_action": rule.episodes_per_action,
    }
    drawn = np.random.default_rng(1).integers(N_STATES, size=(RESAMPLES, N_STATES))
    for kind, own in zip(("independent", "common"), gained, strict=True):
        resampled = own[drawn].sum(axis=1) / attainable[drawn].sum(axis=1)
        line[f"share_{kind}"] = own.sum() / attainable.sum()
        line[f"share_{kind}_error"] = resampled.std(ddof=1)
    return line


def main() -> None:
    """Measure all environments."""
    table = pd.DataFrame([measure(config) for config in CONFIGS])
    write_table(ROOT / "results", "common_actions", table)
    print(table.to_string())


if __name__ == "__main__":
    main()
