"""Contexts and labels of Miniworld by rollouts on poses: Algorithm 1, episodes, Algorithm 5.

What `contexts` and `labels` do on numbered states, for states that are poses.  No images: they
are rendered afterwards, for the poses that are kept.
"""

import numpy as np
from numba import njit
from numpy.typing import NDArray

from sad_hpc.distill.block import Transitions
from sad_hpc.distill.labels import (
    MAX_CANDIDATES,
    NO_LABEL,
    LabelRule,
    Labels,
    best_action,
    hopeless,
)
from sad_hpc.kernels.interruption import LEFT, STOP, finished
from sad_hpc.kernels.random import (
    digits_per_word,
    digits_product,
    digits_word,
    high_product,
    next_double,
    rejection_threshold,
)
from sad_hpc.tasks.miniworld.geometry import BOXES, GEOMETRY
from sad_hpc.tasks.miniworld.motion import moved, random_pose, rewarded


def sample_pose_transitions(
    targets: NDArray[np.int64],
    policy: NDArray[np.uint8],
    horizon: int,
    stream: NDArray[np.uint64],
) -> Transitions:
    """Algorithm 1: in each of T steps a pose drawn uniformly and an action of the policy.

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
    """Rollouts of the behavior policy, T steps each, from the middle with a random heading."""
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
    """(n, 3) poses drawn uniformly, and (n,) actions of the behavior policy."""
    drawn = sample_pose_transitions(targets, policy, 1, stream)
    return drawn.states[:, 0], drawn.actions[:, 0]


def distill_pose_labels(
    targets: NDArray[np.int64],
    policy: NDArray[np.uint8],
    rule: LabelRule,
    stream: NDArray[np.uint64],
    given: NDArray[np.float64] | None = None,
) -> Labels:
    """Algorithm 5 (`stop_at_reward`) or Algorithm 3, generalised to N_ep rollouts an action.

    Args:
        targets: (n,) corners of the targets, 0..3.
        policy: table of the behavior policy (see `policy_table`).
        rule: trust horizon and the rest.
        stream: state of the random stream; it is advanced.
        given: (n, 3) query poses, which have NO_LABEL where they are not good enough; None: drawn
            until they are.

    Raises:
        SadError: for some task no query pose was good enough in a million tries.
        Interrupted: it was told to stop.
    """
    query_poses = np.empty((len(targets), 3), np.float64) if given is None else given
    actions = np.empty(len(targets), np.uint8)
    spent = _distill(
        GEOMETRY, BOXES, targets, policy, digits_per_word(len(policy)),
        rule.discounts, rule.episodes_per_action, rule.stop_at_reward, rule.best_episode,
        rule.least_score, rule.random_ties, stream, given is not None, query_poses, actions, STOP,
    )  # fmt: skip
    if finished(spent) < 0:
        raise hopeless(rule, "pose")
    return Labels(query_poses, actions, spent)


@njit(cache=True, nogil=True)
def _rollout(  # type: ignore[no-untyped-def]  # pragma: no cover
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


@njit(cache=True, nogil=True)
def _distill(  # type: ignore[no-untyped-def]  # pragma: no cover
    geometry, boxes, targets, policy, digits, discounts, episodes, stop_at_reward, best_episode,
    least_score, random_ties, stream, given, query_poses, labels, stop,
):  # fmt: skip
    policy_range = np.uint64(len(policy))
    product = digits_product(len(policy), digits)
    threshold = rejection_threshold(product)
    word, left = np.uint64(0), 0
    scores = np.empty(4, np.float64)
    transitions = 0
    for task in range(len(targets)):
        box_x, box_z = boxes[targets[task], 0], boxes[targets[task], 1]
        accepted = False
        for _ in range(1 if given else MAX_CANDIDATES):
            if given:
                query_x, query_z = query_poses[task, 0], query_poses[task, 1]
                query_heading = query_poses[task, 2]
            else:
                query_x, query_z, query_heading = random_pose(geometry, box_x, box_z, stream)
            limit = len(discounts)
            for first_action in range(4):
                score = 0.0
                for _ in range(episodes):
                    if stop[0]:
                        return LEFT
                    x, z, heading = query_x, query_z, query_heading
                    action = np.uint8(first_action)
                    for t in range(limit):
                        if t > 0:
                            if left == 0:
                                word, left = digits_word(stream, product, threshold), digits
                            action = policy[high_product(word, policy_range)]
                            word *= policy_range
                            left -= 1
                        x, z, heading = moved(geometry, box_x, box_z, x, z, heading, action)
                        transitions += 1
                        if rewarded(geometry, box_x, box_z, x, z, heading):
                            if best_episode:
                                score, limit = discounts[t], t + 1  # never slower than before
                            else:
                                score += discounts[t]
                            if stop_at_reward:
                                break
                scores[first_action] = score if best_episode else score / episodes
            best = best_action(scores, random_ties, stream)
            if scores[best] >= least_score:
                query_poses[task, 0], query_poses[task, 1] = query_x, query_z
                query_poses[task, 2] = query_heading
                labels[task] = best
                accepted = True
                break
        if not accepted:
            if not given:
                return -1
            labels[task] = NO_LABEL
    return transitions
