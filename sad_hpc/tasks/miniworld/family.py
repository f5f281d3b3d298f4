"""Miniworld: a room with four boxes and camera images; one box is the unobserved target.

The room is a square of side 6 with a box in each corner.  Colors and corners are fixed, and a task
is the color of the target.  The model sees images and the heading, but not the position.

`room` has the rules of motion and reward.  Only `environment` and `renderer` need `miniworld` or a
graphics library.
"""

from typing import Any, ClassVar, Literal

import gymnasium
import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from sad_hpc.experiment.families import Horizon, TaskConfig
from sad_hpc.tasks.base import Arrays, TaskFamily
from sad_hpc.tasks.miniworld.room import COLORS


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


gymnasium.register(
    id="sad_hpc/Miniworld-v0",
    entry_point="sad_hpc.tasks.miniworld.environment:MiniworldEnv",
)
