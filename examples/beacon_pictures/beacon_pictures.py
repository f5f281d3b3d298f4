"""A square with an unobserved beacon, seen from above: observations are images.

`env: beacon_pictures:BeaconPictures-v0` in a config imports this module first.
"""

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

PUSHES = 0.25 * np.array([[1, 0], [-1, 0], [0, 1], [0, -1], [0, 0]])
SIDE = 25
"""Pixels along each side of an image."""
RADIUS = 3.0
"""Radius of the agent's disc in pixels."""
FLOOR, AGENT = np.array([30, 60, 90]), np.array([250, 220, 60])


class BeaconPictures(gymnasium.Env[NDArray[np.uint8], np.int64]):
    """The square [-1, 1] x [-1, 1]; the agent pushes itself in one of four directions or rests.

    An image shows the agent as a disc, and not the beacon.  The reward is 1 minus the distance
    to the beacon.  Episodes start anywhere and do not end.
    """

    observation_space = spaces.Box(0, 255, (SIDE, SIDE, 3), np.uint8)
    action_space = spaces.Discrete(len(PUSHES))

    def __init__(self, beacon_x: float = 0.0, beacon_y: float = 0.0) -> None:
        self._beacon = np.array([beacon_x, beacon_y])
        self._place = np.zeros(2)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.uint8], dict[str, Any]]:
        """Put the agent in a random place."""
        super().reset(seed=seed)
        self._place = self.np_random.uniform(-1, 1, 2)
        return self._image(), {}

    def step(self, action: np.int64) -> tuple[NDArray[np.uint8], float, bool, bool, dict[str, Any]]:
        """Move the agent."""
        self._place = np.clip(self._place + PUSHES[action], -1, 1)
        reward = 1 - float(np.hypot(*(self._place - self._beacon)))
        return self._image(), reward, False, False, {}

    def get_state(self) -> NDArray[np.float64]:
        """Return the agent's place (2,), from which `set_state` continues."""
        return self._place

    def set_state(self, state: NDArray[np.float64]) -> None:
        """Put the agent in a place (2,)."""
        self._place = state

    def _image(self) -> NDArray[np.uint8]:
        across, down = RADIUS + (1 + self._place) / 2 * (SIDE - 1 - 2 * RADIUS)
        pixels = np.arange(SIDE)
        distances = np.hypot(pixels[:, None] - down, pixels - across)
        shown = np.clip(RADIUS + 0.5 - distances, 0, 1)[:, :, None]
        return (FLOOR + shown * (AGENT - FLOOR)).astype(np.uint8)


gymnasium.register("BeaconPictures-v0", BeaconPictures)
