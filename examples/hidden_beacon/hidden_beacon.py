"""A square with an unobserved beacon: an example of a task family, vectorized with NumPy.

The agent observes its position, pushes itself in one of four directions or rests, and is moved by
wind.  The reward decreases with the distance to the beacon.  The beacon's position is the task.
"""

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from sad_hpc.experiment.families import Horizon, TaskConfig
from sad_hpc.tasks.simulated import SimulatedFamily, Simulators

PUSHES = 0.2 * np.array([[1, 0], [-1, 0], [0, 1], [0, -1], [0, 0]])
WIND = 0.05
"""Standard deviation of the random displacement of each coordinate in a step."""


class HiddenBeaconConfig(TaskConfig):
    """The `task` section of the hidden beacon."""

    family: Literal["hidden_beacon"] = "hidden_beacon"
    horizon: Horizon = 20


class HiddenBeacon(SimulatedFamily):
    """Squares [-1, 1] x [-1, 1]; a task's parameters are the beacon's position (x, y)."""

    config_class = HiddenBeaconConfig
    name = "hidden_beacon"
    n_actions = len(PUSHES)
    state_center = (0.0, 0.0)
    state_scale = (2.0, 2.0)

    def draw_tasks(
        self, split: str, count: int, generator: np.random.Generator
    ) -> NDArray[np.float64]:
        """Draw beacon positions uniformly, (count, 2); continuous values do not repeat."""
        return generator.uniform(-1, 1, (count, 2))

    def simulators(
        self, parameters: NDArray[np.float64], generator: np.random.Generator
    ) -> "Squares":
        """Return squares with agents in random positions."""
        squares = Squares(parameters, np.zeros(parameters.shape), generator)
        squares.start(np.arange(len(parameters)), generator)
        return squares


class Squares(Simulators):
    """n squares with one agent each.

    Args:
        beacons: (n, 2) positions of the beacons.
        places: (n, 2) positions of the agents.
        generator: random numbers of the wind.
    """

    def __init__(
        self,
        beacons: NDArray[np.float64],
        places: NDArray[np.float64],
        generator: np.random.Generator,
    ) -> None:
        self._beacons, self._generator = beacons, generator
        self.ended = np.zeros(len(beacons), np.bool_)
        self._move_to(places)

    def start(self, rows: NDArray[np.int64], generator: np.random.Generator) -> None:
        """Put agents in random positions."""
        places = self._places.copy()
        places[rows] = generator.uniform(-1, 1, (len(rows), 2))
        self._move_to(places)

    def step(self, actions: NDArray[np.uint8]) -> NDArray[np.float32]:
        """Move agents by pushes and wind; the reward is 1 minus the distance to the beacon."""
        wind = WIND * self._generator.standard_normal(self._places.shape)
        self._move_to(np.clip(self._places + PUSHES[actions] + wind, -1, 1))
        distances = np.linalg.norm(self._places - self._beacons, axis=1)
        return (1 - distances).astype(np.float32)

    def copied(self, rows: NDArray[np.int64], generator: np.random.Generator) -> "Squares":
        """Return squares in the same states, with independent wind."""
        return Squares(self._beacons[rows], self._places[rows], generator.spawn(1)[0])

    def _move_to(self, places: NDArray[np.float64]) -> None:
        self._places, self.observations = places, places.astype(np.float32)
