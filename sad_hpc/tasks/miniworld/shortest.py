"""Optimal actions in Miniworld: the shortest time to a reward, by exact search.

D(pose) is the least number of steps to a rewarded pose, and 0 for a rewarded pose.  Staying keeps
the reward.  An episode of T steps therefore returns at most T + 1 - max(1, D), and the actions that
minimize the next D are optimal for any discount.

The search is iterative deepening (Korf, 1985) over turns and forward steps.  Its lower bound of D
minimizes over the number m of forward steps.  Those m steps must cover the distance, and they
change the direction of the target by at most the angle of the cosine rule.  Turns of 15 degrees
must do the remaining rotation.
"""

import math

import numpy as np
from numba import njit
from numpy.typing import NDArray

from sad_hpc.tasks.miniworld.motion import moved, rewarded
from sad_hpc.tasks.miniworld.room import BOXES, GEOMETRY

MAX_STEPS = 64
"""Upper bound of D: half a turn takes 12 steps, and the room's diagonal 12 more."""
SLACK = 1e-9
"""Tolerance that keeps the lower bound valid despite rounding."""


def steps_to_reward(
    poses: NDArray[np.float64], targets: NDArray[np.int64]
) -> NDArray[np.int64]:  # fmt: skip
    """Return D, (n,), of (n, 3) poses with (n,) targets.

    Raises:
        ValueError: a pose is outside of the room.
    """
    return _run(poses, targets, all_actions=False)[0]


def optimal_pose_actions(
    poses: NDArray[np.float64], targets: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Return whether actions are optimal, (n, 4), at (n, 3) poses with (n,) targets.

    Raises:
        ValueError: a pose is outside of the room.
    """
    return _run(poses, targets, all_actions=True)[1]


def _run(
    poses: NDArray[np.float64], targets: NDArray[np.int64], all_actions: bool
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    poses = np.ascontiguousarray(poses, np.float64)
    targets = np.ascontiguousarray(targets, np.int64)
    # The search ends for poses inside the room only.
    inside = np.abs(poses[:, :2] - GEOMETRY.size / 2) <= GEOMETRY.size / 2 - GEOMETRY.margin + SLACK
    if not (inside.all() and np.isfinite(poses).all()):
        raise ValueError("a pose is outside of the room")
    steps = np.empty(len(poses), np.int64)
    optimal = np.empty((len(poses), 4), np.bool_)
    _search(GEOMETRY, BOXES, poses, targets, all_actions, steps, optimal)
    return steps, optimal


@njit(inline="always")
def _least_steps(geometry, box_x, box_z, x, z, heading):  # type: ignore[no-untyped-def]
    """Return a lower bound of D."""
    dx, dz = box_x - x, box_z - z
    distance = math.sqrt(dx * dx + dz * dz)
    offset = abs(math.atan2(-dz, dx) - heading) % (2 * math.pi)
    excess = min(offset, 2 * math.pi - offset) - math.acos(geometry.cos_facing) - SLACK
    best = MAX_STEPS
    forwards = 0
    if distance >= geometry.near:
        forwards = math.ceil((distance - geometry.near) / geometry.forward - SLACK)
    while forwards < best:
        path = forwards * geometry.forward
        # Final distance: near, outside the target, and with the largest change of direction.
        square = distance * distance - path * path
        end = min(geometry.near, math.sqrt(max(square, geometry.contact * geometry.contact)))
        cosine = (square + end * end) / (2 * distance * end)
        shift = math.acos(min(1.0, max(-1.0, cosine)))
        turns = math.ceil(max(0.0, excess - shift) / geometry.turn - SLACK)
        best = min(best, forwards + turns)
        forwards += 1
    return best


@njit(cache=True, nogil=True)
def _reachable(geometry, box_x, box_z, start_x, start_z, start_heading, limit):  # type: ignore[no-untyped-def]
    """Return whether D <= limit, by depth-first search with an explicit stack."""
    xs, zs, headings = np.empty(MAX_STEPS + 1), np.empty(MAX_STEPS + 1), np.empty(MAX_STEPS + 1)
    # The next action to try at each depth, and the action that led there.
    next_action = np.zeros(MAX_STEPS + 1, np.int64)
    came_by = np.full(MAX_STEPS + 1, 2, np.int64)
    xs[0], zs[0], headings[0] = start_x, start_z, start_heading
    depth = 0
    if _least_steps(geometry, box_x, box_z, start_x, start_z, start_heading) > limit:
        return False
    if rewarded(geometry, box_x, box_z, start_x, start_z, start_heading):
        return True
    while depth >= 0:
        action = next_action[depth]
        if action == 3 or depth == limit:
            depth -= 1
            continue
        next_action[depth] += 1
        # A turn directly after the opposite turn is never shorter.
        if action + came_by[depth] == 1:
            continue
        old_x, old_z = xs[depth], zs[depth]
        x, z, heading = moved(geometry, box_x, box_z, old_x, old_z, headings[depth], action)
        if action == 2 and x == old_x and z == old_z:
            continue
        if rewarded(geometry, box_x, box_z, x, z, heading):
            return True
        left = limit - depth - 1
        if _least_steps(geometry, box_x, box_z, x, z, heading) > left:
            continue
        depth += 1
        xs[depth], zs[depth], headings[depth] = x, z, heading
        next_action[depth] = 0
        came_by[depth] = action
    return False


@njit(cache=True, nogil=True)
def _search(geometry, boxes, poses, targets, all_actions, steps, optimal):  # type: ignore[no-untyped-def]
    for i in range(len(poses)):
        box_x, box_z = boxes[targets[i], 0], boxes[targets[i], 1]
        x, z, heading = poses[i, 0], poses[i, 1], poses[i, 2]
        limit = _least_steps(geometry, box_x, box_z, x, z, heading)
        while not _reachable(geometry, box_x, box_z, x, z, heading, limit):
            limit += 1
        steps[i] = limit
        if all_actions:
            left = max(0, limit - 1)
            for action in range(4):
                to_x, to_z, to_heading = moved(geometry, box_x, box_z, x, z, heading, action)
                optimal[i, action] = _reachable(
                    geometry, box_x, box_z, to_x, to_z, to_heading, left
                )
