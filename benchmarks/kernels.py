"""Collection on one core: the kernels against a Python loop, and against their limit.

The limit draws as many random numbers as a block needs, from the same generators, and writes as
many bytes as the block has, and does nothing else.
"""

from pathlib import Path

import numpy as np
from measure import Work, compare
from numba import njit
from numpy.typing import NDArray

from sad_hpc.distill import make_block
from sad_hpc.experiment.load import load_experiment
from sad_hpc.experiment.sections import DataConfig
from sad_hpc.kernels.random import (
    digits_per_word,
    digits_product,
    digits_word,
    high_product,
    rejection_threshold,
    stream,
)
from sad_hpc.tasks.bandit import BanditFamily
from sad_hpc.tasks.base import make_family
from sad_hpc.tasks.darkroom import Darkroom

PAPER = Path(__file__).parent.parent / "configs/paper"
BLOCKS = 8


def bench_kernels() -> None:
    """Every tabular family of the paper at its own T and N."""
    for name in ("darkroom", "darkroom_large"):
        experiment = load_experiment(PAPER / f"{name}.yaml")
        family, data = make_family(experiment.task), experiment.data
        assert isinstance(family, Darkroom)
        ours = collect_blocks(family, data)
        compare(
            f"kernels {name}",
            "tasks",
            ours,
            Work(lambda f=family, d=data: plain_darkroom(f, d.trust_horizon, 10), 10),
            "a Python loop over environments",
        )
        compare(f"kernels {name}", "tasks", ours, darkroom_limit(family, data), "limit", 0.5)
    experiment = load_experiment(PAPER / "gaussian_bandit.yaml")
    family, data = make_family(experiment.task), experiment.data
    assert isinstance(family, BanditFamily)
    ours = collect_blocks(family, data)
    plain = Work(lambda: plain_bandit(family, data.trust_horizon, 5), 5)
    compare("kernels gaussian_bandit", "tasks", ours, plain, "a Python loop over environments")
    compare("kernels gaussian_bandit", "tasks", ours, bandit_limit(family, data), "limit", 0.6)


def collect_blocks(family: Darkroom | BanditFamily, data: DataConfig) -> Work:
    """Contexts and labels of some whole blocks."""

    def run() -> None:
        for block in range(BLOCKS):
            make_block(family, data, "train", block)

    run()  # compiles, or loads what was compiled
    return Work(run, BLOCKS * data.block_tasks)


def darkroom_limit(family: Darkroom, data: DataConfig) -> Work:
    """The limit of `collect_blocks`."""
    count, horizon, actions = data.block_tasks, family.config.horizon, family.n_actions
    labels = make_block(family, data, "train", 0).steps["labels_sad"]
    # Of each rollout of N steps the first is not drawn.
    steps = round(labels * (1 - 1 / data.trust_horizon))
    state = stream(0, 0, 0, "reference")
    pairs = digits_per_word(family.n_states * actions)

    def run() -> None:
        for _ in range(BLOCKS):
            cells = [np.empty(count * horizon, np.uint16) for _ in range(4)]
            bytes_ = [np.empty(count * horizon, np.uint8) for _ in range(4)]
            _draw_pairs(family.n_states, actions, pairs, state, *cells[:2], *bytes_[:2])
            _draw(actions, digits_per_word(actions), state, *cells[2:], *bytes_[2:])
            _draw_unseen(actions, digits_per_word(actions), steps, state)

    run()
    return Work(run, BLOCKS * count)


def bandit_limit(family: BanditFamily, data: DataConfig) -> Work:
    """The limit of `collect_blocks`."""
    count, horizon, arms = data.block_tasks, family.config.horizon, family.n_actions
    pulls = make_block(family, data, "train", 0).steps["labels_sad"]
    state, digits = stream(0, 0, 0, "reference"), digits_per_word(arms)
    contexts = np.random.default_rng(0)
    rollouts = np.random.Generator(np.random.SFC64(0))

    def run() -> None:
        for _ in range(BLOCKS):
            shape = count * horizon
            rewards, drawn = np.empty(shape, np.float32), np.empty((3, shape), np.uint8)
            _draw(arms, digits, state, *drawn, drawn[0])
            _draw_normals(contexts, rewards)
            _draw_unseen(arms, digits, pulls, state)
            _draw_unseen_normals(rollouts, pulls)

    run()
    return Work(run, BLOCKS * count)


@njit
def _draw_pairs(states, actions, pairs, state, cells, next_cells, chosen, rewards):  # type: ignore[no-untyped-def]
    state_range, action_range = np.uint64(states), np.uint64(actions)
    product = digits_product(states * actions, pairs)
    threshold = rejection_threshold(product)
    for first in range(0, len(cells), pairs):
        word = digits_word(state, product, threshold)
        for i in range(first, min(first + pairs, len(cells))):
            cells[i] = next_cells[i] = high_product(word, state_range)
            word *= state_range
            chosen[i] = rewards[i] = high_product(word, action_range)
            word *= action_range


@njit
def _draw(base, digits, state, a, b, c, d):  # type: ignore[no-untyped-def]
    range_, product = np.uint64(base), digits_product(base, digits)
    threshold = rejection_threshold(product)
    for first in range(0, len(a), digits):
        word = digits_word(state, product, threshold)
        for i in range(first, min(first + digits, len(a))):
            a[i] = b[i] = c[i] = d[i] = high_product(word, range_)
            word *= range_


@njit
def _draw_unseen(base, digits, count, state):  # type: ignore[no-untyped-def]
    range_, product = np.uint64(base), digits_product(base, digits)
    threshold = rejection_threshold(product)
    total = np.uint64(0)
    for first in range(0, count, digits):
        word = digits_word(state, product, threshold)
        for _ in range(first, min(first + digits, count)):
            total += high_product(word, range_)
            word *= range_
    return total


@njit
def _draw_normals(generator, rewards):  # type: ignore[no-untyped-def]
    rewards[:] = generator.standard_normal(len(rewards), np.float32)


@njit
def _draw_unseen_normals(generator, count):  # type: ignore[no-untyped-def]
    total = 0.0
    for _ in range(count):
        total += generator.standard_normal()
    return total


def plain_darkroom(family: Darkroom, trust_horizon: int, tasks: int) -> None:
    """Algorithms 1 and 5 as a loop over environments in Python, as public code has it."""
    generator = np.random.default_rng(0)
    horizon, size = family.config.horizon, family.n_states
    for goal in family.parameters("train", 0, tasks):
        for _ in range(horizon):
            state = family.coordinates[generator.integers(size)]
            family.step(state, generator.integers(5), goal)
        _plain_episode(family, goal, generator)
        fewest = trust_horizon + 1
        while fewest > trust_horizon:
            query = family.coordinates[generator.integers(size)]
            for action in range(5):
                state, chosen = query, action
                for step in range(1, trust_horizon + 1):
                    state, reward = family.step(state, np.intp(chosen), goal)
                    if reward:
                        fewest = min(fewest, step)
                        break
                    chosen = generator.integers(5)


def _plain_episode(
    family: Darkroom, goal: NDArray[np.int16], generator: np.random.Generator
) -> None:
    state = family.coordinates[family.start_state]
    for _ in range(family.config.horizon):
        state, _ = family.step(state, generator.integers(5), goal)


def plain_bandit(family: BanditFamily, trust_horizon: int, tasks: int) -> None:
    """Contexts and Algorithm 2 as a loop over environments in Python."""
    generator = np.random.default_rng(0)
    for means in family.draw_means(tasks, generator):
        for _ in range(family.config.horizon):
            _plain_pull(means, family, generator)
        counts, sums = np.zeros(len(means)), np.zeros(len(means))
        while counts.min() < trust_horizon:
            arm, reward = _plain_pull(means, family, generator)
            counts[arm] += 1
            sums[arm] += reward


def _plain_pull(
    means: NDArray[np.float32], family: BanditFamily, generator: np.random.Generator
) -> tuple[int, float]:
    arm = int(generator.integers(len(means)))
    return arm, means[arm] + family.sigma * generator.standard_normal()


if __name__ == "__main__":
    bench_kernels()
