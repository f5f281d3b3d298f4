"""Random poses for tests, drawn without the project's own kernels, and enumerated rollouts."""

import itertools

import numpy as np
from numpy.typing import NDArray

from sad_hpc.tasks.miniworld.geometry import BOXES, GEOMETRY
from sad_hpc.tasks.miniworld.motion import step_poses


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
