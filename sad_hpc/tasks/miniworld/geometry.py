"""Sizes of Miniworld's room, boxes and agent, and the constants of motion and reward."""

import math
from typing import NamedTuple

import numpy as np

ROOM_SIZE = 6.0
COLORS = ("blue", "red", "green", "yellow")
"""Colors of boxes 0 (low x, low z), 1 (high x, low z), 2 (high, high) and 3 (low, high)."""
BOX_SIZE = 0.8
BOX_RADIUS = math.sqrt(BOX_SIZE * BOX_SIZE + BOX_SIZE * BOX_SIZE) / 2
AGENT_RADIUS = 0.4
FORWARD_STEP = 0.7
TURN_DEGREES = 15.0
NEAR_STEPS = 1.5
"""Largest distance, in forward steps from contact with the target, that counts as near."""
FACING_DEGREES = 30.0

BOXES = np.array(
    [
        (BOX_RADIUS, BOX_RADIUS),
        (ROOM_SIZE - BOX_RADIUS, BOX_RADIUS),
        (ROOM_SIZE - BOX_RADIUS, ROOM_SIZE - BOX_RADIUS),
        (BOX_RADIUS, ROOM_SIZE - BOX_RADIUS),
    ]
)
"""(4, 2): centers (x, z) of the boxes."""


class Geometry(NamedTuple):
    """Constants of motion and reward.

    They are an argument of the kernels, because compiled code on disk does not follow changes of
    module constants.
    """

    size: float = ROOM_SIZE
    margin: float = AGENT_RADIUS
    """Least distance from a wall."""
    contact: float = BOX_RADIUS + AGENT_RADIUS
    """Least distance from the target's center."""
    near: float = BOX_RADIUS + AGENT_RADIUS + NEAR_STEPS * FORWARD_STEP
    """Distances from the target's center below this are rewarded."""
    cos_facing: float = math.cos(math.radians(FACING_DEGREES))
    forward: float = FORWARD_STEP
    turn: float = TURN_DEGREES * (math.pi / 180)
    """Radians, computed as in `miniworld`, to the same bits."""


GEOMETRY = Geometry()
