"""Compiled motion and reward of Miniworld, without images.

The rules are in `tasks.miniworld.room`.  The kernels do the floating-point operations of the
environment in the same order, so poses agree to the last bit.
"""

import math

import numpy as np
from numba import njit
from numpy.typing import NDArray

from sad_hpc.kernels.random import next_double
from sad_hpc.tasks.miniworld.room import BOXES, GEOMETRY


def step_poses(
    poses: NDArray[np.float64], actions: NDArray[np.uint8], targets: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.uint8]]:
    """Step a batch of rooms.

    Args:
        poses: (n, 3) x, z and heading.
        actions: (n,) in 0..3.
        targets: (n,) corners of the targets, 0..3.

    Returns:
        next poses (n, 3) and rewards (n,), 0 or 1.
    """
    # One memory layout and type, so that the kernel is compiled once.
    poses = np.ascontiguousarray(poses, np.float64)
    actions = np.ascontiguousarray(actions, np.uint8)
    targets = np.ascontiguousarray(targets, np.int64)
    next_poses = np.empty(poses.shape, np.float64)
    rewards = np.empty(len(poses), np.uint8)
    _step(GEOMETRY, BOXES, poses, actions, targets, next_poses, rewards)
    return next_poses, rewards


@njit(inline="always")
def rewarded(geometry, box_x, box_z, x, z, heading):  # type: ignore[no-untyped-def]
    """Return whether the target is near and within 30 degrees of the heading."""
    dx, dz = box_x - x, box_z - z
    distance = math.sqrt(dx * dx + dz * dz)
    if distance >= geometry.near:
        return False
    ahead = dx * math.cos(heading) - dz * math.sin(heading)
    return ahead >= geometry.cos_facing * distance


@njit(inline="always")
def is_free(geometry, box_x, box_z, x, z):  # type: ignore[no-untyped-def]
    """Return whether an agent at (x, z) touches neither a wall nor the target."""
    low, high = geometry.margin, geometry.size
    # size - x < margin, as in miniworld, differs from x > size - margin in the last bit.
    if x < low or high - x < low or z < low or high - z < low:
        return False
    dx, dz = box_x - x, box_z - z
    return math.sqrt(dx * dx + dz * dz) >= geometry.contact


@njit(inline="always")
def moved(geometry, box_x, box_z, x, z, heading, action):  # type: ignore[no-untyped-def]
    """Return the next pose; `TURN_LEFT` and the constants beside it number the actions."""
    if action == 0:
        heading += geometry.turn
    elif action == 1:
        heading -= geometry.turn
    elif action == 2:
        new_x = x + math.cos(heading) * geometry.forward
        new_z = z - math.sin(heading) * geometry.forward
        if is_free(geometry, box_x, box_z, new_x, new_z):
            x, z = new_x, new_z
    return x, z, heading


@njit(inline="always")
def random_pose(geometry, box_x, box_z, stream):  # type: ignore[no-untyped-def]
    """Draw a pose uniformly from those without contact."""
    width = geometry.size - 2 * geometry.margin
    while True:
        x = geometry.margin + width * next_double(stream)
        z = geometry.margin + width * next_double(stream)
        if is_free(geometry, box_x, box_z, x, z):
            return x, z, 2 * math.pi * next_double(stream)


@njit(cache=True, nogil=True)
def _step(geometry, boxes, poses, actions, targets, next_poses, rewards):  # type: ignore[no-untyped-def]
    for i in range(len(poses)):
        box_x, box_z = boxes[targets[i], 0], boxes[targets[i], 1]
        x, z, heading = moved(
            geometry, box_x, box_z, poses[i, 0], poses[i, 1], poses[i, 2], actions[i]
        )
        next_poses[i, 0], next_poses[i, 1], next_poses[i, 2] = x, z, heading
        rewards[i] = rewarded(geometry, box_x, box_z, x, z, heading)
