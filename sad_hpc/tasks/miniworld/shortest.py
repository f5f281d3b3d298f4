"""Optimal actions in Miniworld: the shortest time to a reward, by exact search.

D(pose) is the least number of steps after which the agent is rewarded, 0 where it already is.
Staying keeps a reward, so an episode of T steps returns at most T + 1 - max(1, D), and exactly the
actions after which D is least are optimal, for any discount.

The search is iterative deepening (Korf, 1985) over turns and forward steps, with a bound that never
overestimates: a turn changes the heading by 15 degrees and a forward step moves the agent by 0.7,
so m forward steps bring it near only if they cover the distance, and shift the direction of the
target only as far as the cosine rule says; the rest must be turned.
"""

import math

import numpy as np
from numba import njit
from numpy.typing import NDArray

from sad_hpc.tasks.miniworld.geometry import BOXES, GEOMETRY
from sad_hpc.tasks.miniworld.motion import moved, rewarded

MAX_STEPS = 64
"""Far more than any pose needs: half a turn are 12 steps, the room's diagonal 12 more."""
SLACK = 1e-9
"""Rounding never makes the bound exceed the truth."""


def steps_to_reward(
    poses: NDArray[np.float64], targets: NDArray[np.int64]
) -> NDArray[np.int64]:  # fmt: skip
    """(n,): D of (n, 3) poses with (n,) targets.

    Raises:
        ValueError: a pose is outside of the room.
    """
    return _run(poses, targets, all_actions=False)[0]


def optimal_pose_actions(
    poses: NDArray[np.float64], targets: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """(n, 4): whether an action is optimal, at (n, 3) poses with (n,) targets.

    Raises:
        ValueError: a pose is outside of the room.
    """
    return _run(poses, targets, all_actions=True)[1]


def _run(
    poses: NDArray[np.float64], targets: NDArray[np.int64], all_actions: bool
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    poses = np.ascontiguousarray(poses, np.float64)
    targets = np.ascontiguousarray(targets, np.int64)
    # From inside of the room every target can be reached; from elsewhere the search might not end.
    inside = np.abs(poses[:, :2] - GEOMETRY.size / 2) <= GEOMETRY.size / 2 - GEOMETRY.margin + SLACK
    if not (inside.all() and np.isfinite(poses).all()):
        raise ValueError("a pose is outside of the room")
    steps = np.empty(len(poses), np.int64)
    optimal = np.empty((len(poses), 4), np.bool_)
    _search(GEOMETRY, BOXES, poses, targets, all_actions, steps, optimal)
    return steps, optimal


@njit(inline="always")
def _least_steps(geometry, box_x, box_z, x, z, heading):  # type: ignore[no-untyped-def]
    """A lower bound of D."""
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
        # Where the agent ends: near, not in the target, and where its direction shifts most.
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
    """Whether D <= limit; depth first, on a stack of its own."""
    xs, zs, headings = np.empty(MAX_STEPS + 1), np.empty(MAX_STEPS + 1), np.empty(MAX_STEPS + 1)
    # The next action to try at each depth, and the one that led there.
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
        # Turning back at once gains nothing.
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
