"""Pendulum by SAD's labels without error: what trust horizon, discount and rounds can return.

    python benchmarks/pendulum_rounds.py      # writes results/theory/pendulum_rounds.csv

A grid of angles and velocities stands for the states, and values between its points are
interpolated.  Labels are those of infinitely many rollouts; their policy knows the task.  A second
round follows the policy of the first.  Tasks are those of configs/development/pendulum.yaml.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sad_hpc.experiment.load import load_experiment
from sad_hpc.tasks.base import make_family
from sad_hpc.tasks.environments.functional import Functional
from sad_hpc.theory.table import write_table

ROOT = Path(__file__).parent.parent
CONFIG = ROOT / "configs/development/pendulum.yaml"
N_TASKS, N_STARTS, ANGLES, VELOCITIES = 24, 2000, 121, 101
FASTEST, STRONGEST, STEP = 8.0, 2.0, 0.05
"""Limits of the velocity and the torque, and seconds of a step."""
FIRST = [(10, 0.9), (20, 0.9), (20, 0.95), (20, 0.99), (40, 0.9), (40, 0.99)]
SECOND = [(20, 0.9), (20, 0.99), (40, 0.99), (60, 0.99)]

Values = NDArray[np.float64]


@dataclass(frozen=True)
class Place:
    """Points between the grid's points: the cells, and the shares of their far sides."""

    cells: tuple[NDArray[np.int64], NDArray[np.int64]]
    shares: tuple[Values, Values]

    @classmethod
    def of(cls, angles: Values, velocities: Values) -> "Place":
        """Find angles in radians and velocities."""
        round_trip = np.remainder(angles + np.pi, 2 * np.pi) / (2 * np.pi) * (ANGLES - 1)
        upward = (velocities + FASTEST) / (2 * FASTEST) * (VELOCITIES - 1)
        cells = (
            np.minimum(round_trip.astype(np.int64), ANGLES - 2),
            np.minimum(upward.astype(np.int64), VELOCITIES - 2),
        )
        return cls(cells, (round_trip - cells[0], upward - cells[1]))

    def read(self, values: Values) -> Values:
        """Interpolate values (ANGLES, VELOCITIES) at the points."""
        (i, j), (x, y) = self.cells, self.shares
        near = (1 - y) * values[i, j] + y * values[i, j + 1]
        far = (1 - y) * values[i + 1, j] + y * values[i + 1, j + 1]
        return (1 - x) * near + x * far


class Task:
    """A pendulum of length 1 on the grid.

    Args:
        gravity: in m/s^2.
        mass: in kg.
        bins: number of torques, the middles of the model's bins.
    """

    def __init__(self, gravity: float, mass: float, bins: int) -> None:
        angles = np.linspace(-np.pi, np.pi, ANGLES)[:, None]
        velocities = np.linspace(-FASTEST, FASTEST, VELOCITIES)[None]
        self._next, self._rewards = [], []
        for torque in STRONGEST * ((2 * np.arange(bins) + 1) / bins - 1):
            turned = 3 * gravity / 2 * np.sin(angles) + 3 / mass * torque
            after = np.clip(velocities + turned * STEP, -FASTEST, FASTEST)
            self._next.append(Place.of(angles + after * STEP, after))
            self._rewards.append(-(angles**2 + 0.1 * velocities**2 + 0.001 * torque**2))

    def scores(self, policy: NDArray[np.int64] | None, steps: int, discount: float) -> Values:
        """Return the discounted return of each action (A, ANGLES, VELOCITIES) in N steps.

        Args:
            policy: (ANGLES, VELOCITIES), actions after the first one; None: random ones.
            steps: N.
            discount: factor of a step.
        """
        values = np.zeros((ANGLES, VELOCITIES))
        for _ in range(steps - 1):
            each = self._before(values, discount)
            values = each.mean(axis=0) if policy is None else _of(policy, each)
        return self._before(values, discount)

    def returns(self, policy: NDArray[np.int64] | None, horizon: int) -> Values:
        """Return a policy's sum of rewards from each state; None: the optimum of the bins."""
        values = np.zeros((ANGLES, VELOCITIES))
        for _ in range(horizon):
            each = self._before(values, 1.0)
            values = each.max(axis=0) if policy is None else _of(policy, each)
        return values

    def _before(self, values: Values, discount: float) -> Values:
        pairs = zip(self._next, self._rewards, strict=True)
        return np.stack([reward + discount * place.read(values) for place, reward in pairs])


def _of(policy: NDArray[np.int64], scores: Values) -> Values:
    return np.take_along_axis(scores, policy[None], axis=0)[0]


def main() -> None:
    """Measure all rules."""
    experiment = load_experiment(CONFIG)
    family, generator = make_family(experiment.task), np.random.default_rng(0)
    assert isinstance(family, Functional)
    horizon, laws = experiment.task.horizon, family.config.laws
    starts = generator.uniform([-np.pi, -1], [np.pi, 1], (N_STARTS, 2)).T
    begin, lines = Place.of(*starts), []

    def note(name: str, rule: tuple[int, float] | None, values: Values) -> None:
        steps, discount = rule or (None, None)
        line = {"round": name, "trust_horizon": steps, "discount": discount}
        lines.append(line | {"return": begin.read(values).mean(), "optimum": optimum})

    for parameters in family.draw_tasks("train", N_TASKS, generator):
        fields = laws.values(parameters)
        task = Task(fields["g"], fields["m"], family.n_actions)
        best = task.returns(None, horizon)
        optimum = begin.read(best).mean()
        note("optimum", None, best)
        policies = {rule: task.scores(None, *rule).argmax(axis=0) for rule in FIRST}
        for rule, policy in policies.items():
            note("1", rule, task.returns(policy, horizon))
        for first in ((20, 0.9), (20, 0.99)):
            for rule in SECOND:
                policy = task.scores(policies[first], *rule).argmax(axis=0)
                note(f"2 after {first[0]}, {first[1]:g}", rule, task.returns(policy, horizon))
    frame = pd.DataFrame(lines)
    frame["below_optimum"] = frame["optimum"] - frame["return"]
    groups = frame.groupby(["round", "trust_horizon", "discount"], sort=False, dropna=False)
    table = groups[["return", "below_optimum"]].mean()
    table["below_optimum_error"] = groups["below_optimum"].sem()
    table = table.reset_index()
    write_table(ROOT / "results", "pendulum_rounds", table)
    print(table.to_string())


if __name__ == "__main__":
    main()
