import math
import subprocess
import sys

import numpy as np
import pytest

from sad_hpc.tasks.miniworld.family import Miniworld, MiniworldConfig
from sad_hpc.tasks.miniworld.motion import step_poses
from sad_hpc.tasks.miniworld.room import (
    BOXES,
    COLORS,
    FORWARD,
    STAY,
    TURN_LEFT,
    TURN_RIGHT,
    check_pose,
    heading_vectors,
)
from tests.distill.poses import are_rewarded, random_poses


def after(pose, *actions, target=0):
    """Pose and reward after these actions."""
    poses = np.array([pose], np.float64)
    for action in actions:
        poses, rewards = step_poses(poses, np.array([action], np.uint8), np.array([target]))
    return poses[0], rewards[0]


def facing(target: int, distance: float, degrees_off: float) -> tuple[float, float, float]:
    """A pose at that distance from a box, on the diagonal, looking that far past it."""
    inward = np.sign(3 - BOXES[target])
    x, z = BOXES[target] + inward * distance / math.sqrt(2)
    return x, z, math.atan2(inward[1], -inward[0]) + math.radians(degrees_off)


def test_actions_are_turns_of_15_degrees_a_step_of_0_7_and_nothing():
    pose, _ = after((3, 3, 1), TURN_LEFT)
    assert pose == pytest.approx((3, 3, 1 + math.pi / 12))
    pose, _ = after((3, 3, 1), TURN_RIGHT)
    assert pose == pytest.approx((3, 3, 1 - math.pi / 12))
    pose, _ = after((3, 3, 1), FORWARD)
    assert pose == pytest.approx((3 + 0.7 * math.cos(1), 3 - 0.7 * math.sin(1), 1))
    assert (after((3, 3, 1), STAY)[0] == (3, 3, 1)).all()


def test_turning_left_turns_towards_the_left_of_the_image():
    """Facing +x, the box in corner 0 (low z) is on the left: turning left brings it ahead."""
    assert after((3, 1, math.pi), TURN_RIGHT, FORWARD, target=0)[0][1] < 1
    assert after((3, 1, 0), TURN_LEFT, FORWARD, target=0)[0][1] < 1


@pytest.mark.parametrize("heading", [0, math.pi / 2, math.pi, -math.pi / 2])
def test_steps_into_a_wall_are_refused(heading):
    pose, _ = after((3, 3, heading), *[FORWARD] * 20, target=0)
    travelled = np.abs(pose[:2] - 3).max()
    assert travelled == pytest.approx(3 * 0.7)
    assert pose[:2].min() >= 0.4 and pose[:2].max() <= 5.6


@pytest.mark.parametrize("corner", range(4))
def test_the_target_stops_the_agent_and_other_boxes_do_not(corner):
    start = facing(corner, 1.5, 0)
    assert (after(start, FORWARD, target=corner)[0] == start).all()
    passed, _ = after(start, FORWARD, target=(corner + 1) % 4)
    assert np.linalg.norm(passed[:2] - BOXES[corner]) == pytest.approx(0.8)


@pytest.mark.parametrize("corner", range(4))
def test_reward_is_for_being_near_the_target_and_facing_it(corner):
    near = 0.4 * math.sqrt(2) + 0.4 + 1.5 * 0.7
    cases = {(near - 0.01, 29.9): 1, (near - 0.01, -29.9): 1, (near - 0.01, 30.1): 0}
    cases |= {(near - 0.01, -30.1): 0, (near + 0.01, 0): 0, (1.0, 0): 1, (1.0, 180): 0}
    for (distance, off), reward in cases.items():
        pose = facing(corner, distance, off)
        assert after(pose, STAY, target=corner)[1] == reward
        assert after(pose, STAY, target=(corner + 2) % 4)[1] == 0


def test_random_poses_see_a_reward_as_often_as_the_angle_and_the_area_say():
    poses, targets = random_poses(40_000)
    distances = np.linalg.norm(BOXES[targets] - poses[:, :2], axis=1)
    offsets = np.abs(np.angle(np.exp(1j * (bearings(poses, targets) - poses[:, 2]))))
    near = 0.4 * math.sqrt(2) + 0.4 + 1.5 * 0.7
    expected = (distances < near) & (offsets < math.pi / 6)
    assert (are_rewarded(poses, targets) == expected).all()


def bearings(poses, targets):
    to_target = BOXES[targets] - poses[:, :2]
    return np.arctan2(-to_target[:, 1], to_target[:, 0])


def test_headings_shown_to_the_model_are_unit_vectors_along_a_forward_step():
    poses, targets = random_poses(1000)
    vectors = heading_vectors(poses)
    moved, _ = step_poses(poses, np.full(1000, FORWARD, np.uint8), targets)
    steps = moved[:, :2] - poses[:, :2]
    free = steps.any(axis=1)
    assert vectors.dtype == np.float32 and free.mean() > 0.5
    np.testing.assert_allclose(0.7 * vectors[free], steps[free], atol=1e-6)


def test_tasks_are_four_fifths_for_training_and_each_target_equally_often():
    family = Miniworld(MiniworldConfig())
    assert (family.n_tasks("train", 40_000), family.n_tasks("test", 40_000)) == (32_000, 8_000)
    targets, counts = np.unique(family.parameters("train", 0, 32_000), return_counts=True)
    assert (targets == range(len(COLORS))).all()
    assert (counts == 8_000).all()
    assert (family.parameters("test", 6, 3) == [[2], [3], [0]]).all()


@pytest.mark.parametrize("pose", [(0.3, 3, 0), (3, 5.7, 0), (3, 3), (3, 3, math.nan)])
def test_poses_in_a_wall_are_refused(pose):
    with pytest.raises(ValueError, match="pose"):
        check_pose(pose)


def test_the_family_is_there_without_miniworld():
    code = "import sys\nfrom sad_hpc.tasks.miniworld import family\n"
    code += "print({'miniworld', 'pyglet', 'numba'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
