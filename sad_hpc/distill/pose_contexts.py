"""Contexts of Miniworld: Algorithm 1 and episodes of the behavior policy, as poses.

This module is the counterpart of `contexts` for poses.  Images are rendered later.
"""

import numpy as np
from numba import njit
from numpy.typing import NDArray

from sad_hpc.distill.block import Transitions
from sad_hpc.kernels.random import (
    digits_per_word,
    digits_product,
    digits_word,
    high_product,
    next_double,
    rejection_threshold,
)
from sad_hpc.tasks.miniworld.motion import moved, random_pose, rewarded
from sad_hpc.tasks.miniworld.room import BOXES, GEOMETRY


def sample_pose_transitions(
    targets: NDArray[np.int64],
    policy: NDArray[np.uint8],
    horizon: int,
    stream: NDArray[np.uint64],
) -> Transitions:
    """Algorithm 1: in each of T steps, draw a pose uniformly and an action by the policy.

    Args:
        targets: (n,) corners of the targets, 0..3.
        policy: table of the behavior policy (see `policy_table`).
        horizon: T.
        stream: state of the random stream; it is advanced.
    """
    return _sample(targets, policy, horizon, stream, fresh=True)


def sample_pose_episodes(
    targets: NDArray[np.int64],
    policy: NDArray[np.uint8],
    horizon: int,
    stream: NDArray[np.uint64],
) -> Transitions:
    """Roll out the behavior policy for T steps from the middle with a random heading."""
    return _sample(targets, policy, horizon, stream, fresh=False)


def _sample(
    targets: NDArray[np.int64],
    policy: NDArray[np.uint8],
    horizon: int,
    stream: NDArray[np.uint64],
    fresh: bool,
) -> Transitions:
    shape = (len(targets), horizon)
    result = Transitions(
        np.empty((*shape, 3), np.float64),
        np.empty(shape, np.uint8),
        np.empty(shape, np.uint8),
        np.empty((*shape, 3), np.float64),
    )
    _rollout(
        GEOMETRY, BOXES, targets, policy, digits_per_word(len(policy)), fresh, stream,
        result.states, result.actions, result.rewards, result.next_states,
    )  # fmt: skip
    return result


def sample_pose_actions(
    targets: NDArray[np.int64], policy: NDArray[np.uint8], stream: NDArray[np.uint64]
) -> tuple[NDArray[np.float64], NDArray[np.uint8]]:
    """Draw poses (n, 3) uniformly, and actions (n,) by the behavior policy."""
    drawn = sample_pose_transitions(targets, policy, 1, stream)
    return drawn.states[:, 0], drawn.actions[:, 0]


@njit(cache=True, nogil=True)
def _rollout(  # type: ignore[no-untyped-def]
    geometry, boxes, targets, policy, digits, fresh, stream, poses, actions, rewards, next_poses,
):  # fmt: skip
    policy_range = np.uint64(len(policy))
    product = digits_product(len(policy), digits)
    threshold = rejection_threshold(product)
    word, left = np.uint64(0), 0
    for task in range(poses.shape[0]):
        box_x, box_z = boxes[targets[task], 0], boxes[targets[task], 1]
        x, z = geometry.size / 2, geometry.size / 2
        heading = 0.0 if fresh else 2 * np.pi * next_double(stream)
        for t in range(poses.shape[1]):
            if fresh:
                x, z, heading = random_pose(geometry, box_x, box_z, stream)
            if left == 0:
                word, left = digits_word(stream, product, threshold), digits
            action = policy[high_product(word, policy_range)]
            word *= policy_range
            left -= 1
            poses[task, t, 0], poses[task, t, 1], poses[task, t, 2] = x, z, heading
            actions[task, t] = action
            x, z, heading = moved(geometry, box_x, box_z, x, z, heading, action)
            next_poses[task, t, 0], next_poses[task, t, 1] = x, z
            next_poses[task, t, 2] = heading
            rewards[task, t] = rewarded(geometry, box_x, box_z, x, z, heading)
