"""Random poses for tests, drawn without the project's own kernels, and enumerated rollouts."""

import itertools

import numpy as np
from numpy.typing import NDArray

from sad_hpc.tasks.miniworld.motion import step_poses
from sad_hpc.tasks.miniworld.room import BOXES, GEOMETRY


def random_poses(count: int, seed: int = 0) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """(count, 3) free poses, uniformly, and (count,) targets."""
    generator = np.random.default_rng(seed)
    targets = np.arange(2 * count) % 4
    poses = generator.uniform([0.4, 0.4, 0], [5.6, 5.6, 2 * np.pi], (2 * count, 3))
    free = np.linalg.norm(BOXES[targets] - poses[:, :2], axis=1) >= GEOMETRY.contact
    return poses[free][:count], targets[free][:count]


def are_rewarded(poses: NDArray[np.float64], targets: NDArray[np.int64]) -> NDArray[np.bool_]:
    """(n,): whether to be at (n, 3) poses is rewarded, with (n,) targets."""
    stay = np.full(len(poses), 3, np.uint8)
    return step_poses(poses, stay, targets)[1].astype(np.bool_)


def first_rewards(
    poses: NDArray[np.float64], targets: NDArray[np.int64], steps: int
) -> NDArray[np.int64]:
    """(n, 4, 4^(steps-1)): the first step (1..steps) that is rewarded, or steps + 1 for none.

    Of every sequence of actions: the first action, and each of the ways to go on.
    """
    results = np.full((len(poses), 4, 4 ** (steps - 1)), steps + 1)
    for number, sequence in enumerate(itertools.product(range(4), repeat=steps)):
        first, rest = divmod(number, 4 ** (steps - 1))
        here, column = poses, results[:, first, rest]
        for step, action in enumerate(sequence, start=1):
            here, rewards = step_poses(here, np.full(len(here), action, np.uint8), targets)
            column[(rewards > 0) & (column > steps)] = step
    return results


def pose_law(
    poses: NDArray[np.float64], targets: NDArray[np.int64], shares: NDArray[np.float64]
) -> NDArray[np.float64]:
    """(n, 4, 4): chance that a rollout of N = 3 is first paid at step 1, 2, 3 or not at all."""
    ways = np.outer(shares, shares).ravel()
    hits = first_rewards(poses, targets, 3)
    return np.stack([((hits == k) * ways).sum(axis=-1) for k in range(1, 5)], axis=-1)


def assert_labels_have_chances(actions: NDArray[np.uint8], chances: NDArray[np.float64]) -> None:
    """Wherever an action has about the same chance, it is the label about that often."""
    accepted = chances.sum(axis=1)
    assert (accepted > 0).all()
    assert (chances[np.arange(len(actions)), actions] > 0).all()
    expected = chances / accepted[:, None]
    for action in range(4):
        taken, cells = actions == action, np.digitize(expected[:, action], [0.2, 0.5, 0.8])
        for cell in range(4):
            p, hit = expected[cells == cell, action], taken[cells == cell]
            deviation = (hit - p).sum() / max(1.0, np.sqrt((p * (1 - p)).sum()))
            assert abs(deviation) < 4, (action, cell)
