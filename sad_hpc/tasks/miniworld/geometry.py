"""Miniworld's room in numbers: sizes, boxes, and what motion and reward depend on."""

import math
from typing import NamedTuple

import numpy as np

ROOM_SIZE = 6.0
COLORS = ("blue", "red", "green", "yellow")
"""Of the boxes in corners 0 (low x, low z), 1 (high x, low z), 2 (high, high), 3 (low, high)."""
BOX_SIZE = 0.8
BOX_RADIUS = math.sqrt(BOX_SIZE * BOX_SIZE + BOX_SIZE * BOX_SIZE) / 2
AGENT_RADIUS = 0.4
FORWARD_STEP = 0.7
TURN_DEGREES = 15.0
NEAR_STEPS = 1.5
"""How many forward steps away from touching the target is still near."""
FACING_DEGREES = 30.0

BOXES = np.array(
    [
        (BOX_RADIUS, BOX_RADIUS),
        (ROOM_SIZE - BOX_RADIUS, BOX_RADIUS),
        (ROOM_SIZE - BOX_RADIUS, ROOM_SIZE - BOX_RADIUS),
        (BOX_RADIUS, ROOM_SIZE - BOX_RADIUS),
    ]
)
"""(4, 2): centres (x, z) of the boxes."""


class Geometry(NamedTuple):
    """What motion and reward depend on, besides the target; an argument of the kernels, because
    compiled code that is kept on disk would not notice a changed constant."""

    size: float = ROOM_SIZE
    margin: float = AGENT_RADIUS
    """Least distance from a wall."""
    contact: float = BOX_RADIUS + AGENT_RADIUS
    """Least distance from the target's centre."""
    near: float = BOX_RADIUS + AGENT_RADIUS + NEAR_STEPS * FORWARD_STEP
    """Distances from the target's centre below this are rewarded."""
    cos_facing: float = math.cos(math.radians(FACING_DEGREES))
    forward: float = FORWARD_STEP
    turn: float = TURN_DEGREES * (math.pi / 180)
    """Radians; multiplied as `miniworld` does, to the same bits."""


GEOMETRY = Geometry()
