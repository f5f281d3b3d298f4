"""Miniworld: a room with four boxes and camera images; one box is the unobserved target.

The room is a square of side 6 with a box in each corner.  Colors and corners are fixed, and a task
is the color of the target.  The model sees images and the heading, but not the position.

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

Only `environment` and `renderer` need `miniworld` or a graphics library.
"""

import math
from typing import Any, ClassVar, Literal, NamedTuple

import gymnasium
import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from sad_hpc.experiment.families import Horizon, TaskConfig
from sad_hpc.tasks.base import Arrays, TaskFamily

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


class MiniworldConfig(TaskConfig):
    """`task` section of Miniworld."""

    family: Literal["miniworld"] = "miniworld"
    horizon: Horizon = 50
    """T: transitions in a context, and steps in an episode."""
    image_size: int = Field(25, ge=13, le=256)
    """Pixels along each side of an image; at least as many as the image encoder needs."""


class Miniworld(TaskFamily):
    """Rooms that differ in their target; a task's parameter is the target's corner (0..3).

    There are only four targets, so training and test tasks share them.  Test tasks have new
    contexts.  States are poses (x, z, heading); the model sees the heading only.
    """

    config_class: ClassVar[type[TaskConfig]] = MiniworldConfig
    config: MiniworldConfig
    name = "miniworld"
    n_actions = 4
    state_center = (0.0, 0.0, 0.0)
    state_scale = (1.0, 1.0, 1.0)
    reward_dtype = np.uint8
    sparse_reward = True
    model_revision = 2
    no_rounds = "every step of a rollout that follows a Miniworld model needs a rendered image"

    def __init__(self, config: MiniworldConfig) -> None:
        super().__init__(config)
        self.image_size = config.image_size

    def parameters(self, split: str, first: int, count: int) -> NDArray[np.int16]:
        """Return the targets of tasks in turn, (count, 1), so that all are equally frequent."""
        return (np.arange(first, first + count) % len(COLORS)).astype(np.int16)[:, None]

    def are_optimal(
        self, parameters: NDArray[Any], query_states: NDArray[Any], actions: NDArray[Any]
    ) -> NDArray[np.bool_]:
        """Implement `TaskFamily.are_optimal`."""
        # Imported here because this module compiles kernels.
        from sad_hpc.tasks.miniworld.shortest import optimal_pose_actions

        try:
            targets = np.repeat(_targets(parameters), actions.shape[1])
            optimal = optimal_pose_actions(query_states.reshape(-1, 3), targets)
            return optimal[np.arange(actions.size), actions.reshape(-1)].reshape(actions.shape)
        except ValueError as error:
            raise KeyError(str(error)) from error

    def dynamics_faults(
        self, parameters: NDArray[Any], group: str, context: Arrays, cut: bool = False
    ) -> list[str]:
        """Check by replay that next poses and rewards of contexts are right, to the last bit."""
        from sad_hpc.tasks.miniworld.motion import step_poses

        poses, next_poses = context["states"], context["next_states"]
        try:
            targets = np.repeat(_targets(parameters), poses.shape[1])
        except KeyError:
            return [f"tasks/parameters holds targets that {self.name} does not have"]
        if not (self.has_actions(context["actions"]) and np.isfinite(poses).all()):
            return [f"{group} holds states or actions that {self.name} does not have"]
        moved, paid = step_poses(poses.reshape(-1, 3), context["actions"].ravel(), targets)
        faults = []
        if (moved != next_poses.reshape(-1, 3)).any() or (paid != context["rewards"].ravel()).any():
            faults.append(f"{group} breaks the dynamics of {self.name}")
        if group == "episodes" and (poses[:, 1:] != next_poses[:, :-1]).any():
            faults.append("episodes are not in time order")
        return faults


def _targets(parameters: NDArray[Any]) -> NDArray[np.int64]:
    """Return the target's corner of each task, (n,), from parameters (n, 1)."""
    targets = parameters[:, 0].astype(np.int64)
    if ((targets < 0) | (targets >= len(COLORS))).any():
        raise KeyError("targets must be corners 0 to 3")
    return targets


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


gymnasium.register(
    id="sad_hpc/Miniworld-v0",
    entry_point="sad_hpc.tasks.miniworld.environment:MiniworldEnv",
)
