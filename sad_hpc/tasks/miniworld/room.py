"""The room of Miniworld: its boxes, how the agent moves, and where it is rewarded.

The paper does not state the following rules:

- A pose is (x, z, heading), in the room's units and in radians.  Heading 0 faces +x, and turning
  left increases it, so the agent faces (cos heading, -sin heading).  Headings are not reduced
  modulo 2 pi.
- Boxes and agent have the sizes of the `miniworld` package (side 0.8, radius 0.4).  A box's center
  is its radius away from both walls, as in `miniworld`.
- A forward step that would bring the agent's circle into a wall or the target box has no effect:
  the collision rule of `miniworld`.  The agent can walk through other boxes.
- The reward is 1 if after the step the target is near (distance of centers below box radius + agent
  radius + 1.5 forward steps) and at most 30 degrees away from the heading.
- A random position is uniform over all positions without contact with a wall or the target, and a
  random heading is uniform over the circle.  An episode starts in the middle of the room with a
  random heading.
- Textures, light and camera are the defaults of `miniworld`, without randomization.
"""

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

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


TURN_LEFT, TURN_RIGHT, FORWARD, STAY = range(4)


def heading_vectors(poses: NDArray[np.float64]) -> NDArray[np.float32]:
    """Return the direction in x and z, (..., 2), that an agent at poses (..., 3) faces."""
    headings = poses[..., 2]
    return np.stack([np.cos(headings), -np.sin(headings)], axis=-1).astype(np.float32)


def check_pose(pose: Any) -> NDArray[np.float64]:
    """Check a pose, and convert it to a float array (3,).

    Raises:
        ValueError: it is not a pose, or the agent would touch a wall.
    """
    result = np.asarray(pose, dtype=np.float64)
    low, high = AGENT_RADIUS, ROOM_SIZE - AGENT_RADIUS
    if result.shape != (3,) or not np.isfinite(result).all():
        raise ValueError(f"pose must be three numbers (x, z, heading), not {pose}")
    if not ((result[:2] >= low) & (result[:2] <= high)).all():
        raise ValueError(f"pose {pose}: x and z must be between {low} and {high}")
    return result
