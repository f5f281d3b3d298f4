"""The environment, its images, and what the compiled kernels make of the same actions."""

import math

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from sad_hpc.tasks.miniworld.motion import step_poses
from sad_hpc.tasks.miniworld.room import BOX_SIZE, BOXES, COLORS, heading_vectors
from tests.distill.poses import random_poses
from tests.gl import require_gl

require_gl()

from miniworld.entity import Box  # noqa: E402 (only where OpenGL is)

from sad_hpc.tasks.miniworld.environment import MiniworldEnv  # noqa: E402
from sad_hpc.tasks.miniworld.renderer import Renderer, shared_renderer  # noqa: E402

NAME = "sad_hpc/Miniworld-v0"


def make(**options):
    return gymnasium.make(NAME, **options).unwrapped


def test_environment_passes_gymnasiums_checker():
    check_env(make(target=2))


def test_episode_starts_in_the_middle_with_a_random_heading_and_is_truncated_after_the_horizon():
    env = make(horizon=4)
    headings = []
    for seed in range(20):
        observation, info = env.reset(seed=seed)
        assert (info["pose"][:2] == 3).all()
        headings.append(info["pose"][2])
        assert (observation["heading"] == heading_vectors(info["pose"])).all()
    assert len(set(headings)) == 20
    assert 0 <= min(headings) < 2 < 4 < max(headings) < 2 * math.pi
    ends = [env.step(3)[2:4] for _ in range(4)]
    assert ends == [(False, False)] * 3 + [(False, True)]


def test_kernel_agrees_with_the_environment_to_the_last_bit_over_thousands_of_random_steps():
    generator = np.random.default_rng(0)
    poses, targets = random_poses(60, seed=1)
    blocked = rewarded = 0
    for corner in range(4):
        env = make(target=corner)
        for start in poses[targets == corner]:
            env.reset(options={"pose": start})
            here = start[None]
            # Mostly forward, so that walls and the target are run into often.
            for action in generator.choice(4, 50, p=[0.15, 0.15, 0.6, 0.1]):
                observation, reward, terminated, _, info = env.step(action)
                after, rewards = step_poses(here, np.array([action], np.uint8), np.array([corner]))
                assert (after[0] == info["pose"]).all()
                assert rewards[0] == reward
                assert not terminated
                assert (observation["heading"] == heading_vectors(after[0])).all()
                blocked += action == 2 and (after == here).all()
                rewarded += reward
                here = after
    assert blocked > 200 and rewarded > 50


def test_renderer_makes_the_images_of_the_environment_to_the_last_bit():
    renderer = shared_renderer(25)
    poses, _ = random_poses(200, seed=2)
    images = renderer.render(poses)
    assert images.shape == (200, 25, 25, 3) and images.dtype == np.uint8
    env = make()
    for pose, image in zip(poses, images, strict=True):
        observation, _ = env.reset(options={"pose": pose})
        assert (observation["image"] == image).all()
    assert (renderer.render(poses[::-1]) == images[::-1]).all()


def test_images_are_those_of_miniworlds_own_boxes():
    class OwnBoxes(MiniworldEnv):
        def _gen_world(self):
            super()._gen_world()
            for entity in self.entities[:4]:
                index = self.entities.index(entity)
                box = Box(COLORS[index], BOX_SIZE)
                box.pos, box.dir = entity.pos, entity.dir
                self.entities[index] = box
            self._target = self.entities[0]

    poses, _ = random_poses(50, seed=3)
    images = shared_renderer(25).render(poses)
    env = OwnBoxes()
    for pose, image in zip(poses, images, strict=True):
        assert (env.reset(options={"pose": pose})[0]["image"] == image).all()
    shared_renderer(25).render(poses[:1])  # leaves the shared display list as it was


def test_other_sizes_and_no_poses_at_all():
    assert Renderer(16).render(np.array([[3.0, 3.0, 0.0]])).shape == (1, 16, 16, 3)
    assert shared_renderer(25).render(np.empty((0, 3))).shape == (0, 25, 25, 3)
    with pytest.raises(ValueError, match=r"\(n, 3\)"):
        shared_renderer(25).render(np.zeros(3))


def test_colors_can_be_told_apart_from_everywhere_in_the_room():
    """Looking at a box, from near or from the other end: its color is in the image's middle."""
    pure = {"blue": (0, 0, 1), "red": (1, 0, 0), "green": (0, 1, 0), "yellow": (1, 1, 0)}
    for corner, name in enumerate(COLORS):
        inward = np.sign(3 - BOXES[corner])
        for distance in (1.0, 1.5, 2.0, 3.0, 4.5, 6.0):
            x, z = BOXES[corner] + inward * distance / math.sqrt(2)
            heading = math.atan2(inward[1], -inward[0])
            image = shared_renderer(25).render(np.array([[x, z, heading]]))[0].astype(int)
            saturation = image.max(axis=-1) - image.min(axis=-1)
            seen = image[saturation > 90]
            assert len(seen) >= 4
            # Light changes the brightness of a face, never which channels are on.
            on = seen > seen.max(axis=-1, keepdims=True) / 2
            assert (on == np.array(pure[name], bool)).all()


def test_an_unknown_target_is_refused():
    with pytest.raises(ValueError, match="0, 1, 2 or 3"):
        make(target=4)
