"""Quality of SAD's labels in simulators, with independent and with common random actions.

    pip install examples/cheetah_velocity
    python benchmarks/common_actions.py      # writes results/theory/common_actions.csv

In random states the true action values are measured by many rollouts.  A label's share of the
attainable return is 0 if its value is the mean of the tried actions, and 1 if it is the best.  Both
kinds of labels take the same number of transitions.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sad_hpc.aggregate.formats import write_csv
from sad_hpc.distill.labels import LabelRule
from sad_hpc.distill.rollout import Behavior
from sad_hpc.experiment.load import load_experiment
from sad_hpc.storage.files import write_json
from sad_hpc.storage.provenance import portable, provenance
from sad_hpc.tasks.base import make_family
from sad_hpc.tasks.simulated import SimulatedFamily, Simulators

ROOT = Path(__file__).parent.parent
CONFIGS = (
    "environments/cartpole",
    "environments/lunar_lander",
    "environments/pendulum",
    "cheetah_velocity/config",
)
N_STATES, RANDOM_STEPS, TRUE_EPISODES, REPEATS = 24, 20, 64, 8


@dataclass
class Labelling:
    """Query states with candidates, whose rollouts are scored.

    Args:
        simulators: n in their query states.
        candidates: (n, C) or (n, C, a) first actions.
        behavior: policy of the steps after the first one.
        rule: N, and the discounts.
        generator: random numbers of the rollouts.
    """

    simulators: Simulators
    candidates: NDArray[np.generic]
    behavior: Behavior
    rule: LabelRule
    generator: np.random.Generator

    def returns(self, episodes: int, common: bool) -> NDArray[np.float64]:
        """Return the returns (n, C, episodes) of rollouts, with or without common actions."""
        count, tried = self.candidates.shape[:2]
        rows = np.repeat(np.arange(count), tried * episodes)
        copies = self.simulators.copied(rows, self.generator)
        actions = np.repeat(self.candidates.reshape(-1, *self.candidates.shape[2:]), episodes, 0)
        total, running = np.zeros(len(rows)), np.ones(len(rows), np.bool_)
        for discount in self.rule.discounts:
            total += discount * copies.step(actions) * running
            running &= ~copies.ended
            drawn = self.behavior.draw(count * (1 if common else tried) * episodes, self.generator)
            shape = (count, -1, episodes, *drawn.shape[1:])
            actions = np.broadcast_to(
                drawn.reshape(shape), (count, tried, episodes, *drawn.shape[1:])
            ).reshape(actions.shape)
        return total.reshape(count, tried, episodes)


def labelling(family: SimulatedFamily, rule: LabelRule, seed: int = 0) -> Labelling:
    """Return query states of random play, one for each of N_STATES tasks."""
    generator = np.random.default_rng(seed)
    behavior = Behavior.of(family, np.arange(family.n_actions))
    simulators = family.simulators(family.draw_tasks("train", N_STATES, generator), generator)
    for _ in range(RANDOM_STEPS):
        simulators.step(behavior.draw(N_STATES, generator))
        simulators.start(np.flatnonzero(simulators.ended), generator)
    return Labelling(
        simulators, behavior.candidates(N_STATES, rule, generator), behavior, rule, generator
    )


def measure(config: str) -> dict[str, object]:
    """Return the line of an environment."""
    experiment = load_experiment(ROOT / "examples" / f"{config}.yaml")
    family = make_family(experiment.task)
    assert isinstance(family, SimulatedFamily)
    rule = LabelRule.of(experiment.data, family.sparse_reward)
    asked, episodes = labelling(family, rule), rule.episodes_per_action
    found = asked.returns(TRUE_EPISODES, common=True)
    values = found.mean(axis=2)
    attainable = (values.max(axis=1) - values.mean(axis=1)).mean()
    line: dict[str, object] = {
        "config": f"examples/{config}.yaml",
        "trust_horizon": rule.trust_horizon,
        "episodes_per_action": episodes,
        "candidates": asked.candidates.shape[1],
        "std_of_values": values.std(axis=1).mean(),
        "std_of_returns": found.std(axis=2).mean(),
        "std_of_differences": (found - found.mean(axis=1, keepdims=True)).std(axis=2).mean(),
    }
    for kind in ("independent", "common"):
        shares = []
        for _ in range(REPEATS):
            scores = asked.returns(episodes, kind == "common").mean(axis=2)
            # Equal scores are broken at random, as in labels.
            labels = (scores + 1e-9 * asked.generator.random(scores.shape)).argmax(axis=1)
            gained = values[np.arange(N_STATES), labels] - values.mean(axis=1)
            shares.append(gained.mean() / attainable)
        line[f"share_{kind}"] = np.mean(shares)
        line[f"share_{kind}_error"] = np.std(shares, ddof=1) / np.sqrt(REPEATS)
    return line


def main() -> None:
    """Measure all environments."""
    table = pd.DataFrame([measure(config) for config in CONFIGS])
    folder = ROOT / "results" / "theory"
    write_csv(folder / "common_actions.csv", table)
    write_json(folder / "common_actions.json", portable(provenance()))
    print(table.to_string())


if __name__ == "__main__":
    main()
