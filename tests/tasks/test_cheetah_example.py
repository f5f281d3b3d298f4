"""The HalfCheetah example, compared with its Gymnasium environment."""

import importlib.util
from pathlib import Path
from types import ModuleType

import gymnasium
import numpy as np
import pytest

SOURCE = Path(__file__).parents[2] / "examples" / "cheetah_velocity" / "cheetah_velocity.py"


@pytest.fixture(scope="module")
def example() -> ModuleType:
    pytest.importorskip("mujoco")
    spec = importlib.util.spec_from_file_location("cheetah_velocity_example", SOURCE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_it_moves_as_gymnasiums_half_cheetah_does(example: ModuleType) -> None:
    generator = np.random.default_rng(0)
    family = example.CheetahVelocity(example.CheetahConfig())
    wanted = family.draw_tasks("train", 3, generator)
    cheetahs = family.simulators(wanted, generator)
    ours = cheetahs.copied(np.array([2]), generator)
    environment = gymnasium.make("HalfCheetah-v5").unwrapped
    environment.reset(seed=0)
    state = cheetahs.copied(np.array([2]), generator)
    environment.set_state(state._states[0, 1:10], state._states[0, 10:])
    for _ in range(40):
        action = generator.uniform(-1, 1, (1, 6)).astype(np.float32)
        rewards = ours.step(action)
        observation, _, _, _, info = environment.step(action[0])
        np.testing.assert_allclose(ours.observations[0], observation, atol=1e-5)
        expected = -abs(info["x_velocity"] - wanted[2, 0]) - 0.05 * (action**2).sum()
        np.testing.assert_allclose(rewards[0], expected, atol=1e-4)
    np.testing.assert_array_equal(state.observations[0], cheetahs.observations[2])  # left alone


def test_each_part_of_the_range_has_one_test_velocity(example: ModuleType) -> None:
    """Replicates therefore have test tasks of the same difficulty."""
    family = example.CheetahVelocity(example.CheetahConfig())
    for seed in range(3):
        generator = np.random.default_rng(seed)
        velocities = family.draw_tasks("test", 50, generator)[:, 0]
        parts = np.floor(velocities / example.FASTEST * 50)
        np.testing.assert_array_equal(np.sort(parts), np.arange(50))
        assert np.any(np.diff(velocities) < 0)  # in no order
