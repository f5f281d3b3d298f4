import numpy as np
import pytest

from sad_hpc.tasks.miniworld.motion import step_poses
from sad_hpc.tasks.miniworld.shortest import optimal_pose_actions, steps_to_reward
from tests.distill.poses import are_rewarded, first_rewards, random_poses

POSES, TARGETS = random_poses(1500, seed=11)


def after(poses, targets, action):
    return step_poses(poses, np.full(len(poses), action, np.uint8), targets)[0]


def test_steps_satisfy_bellmans_equation():
    """With D = 0 exactly where rewarded, its only solution is the shortest time."""
    steps = steps_to_reward(POSES, TARGETS)
    following = np.stack([steps_to_reward(after(POSES, TARGETS, a), TARGETS) for a in range(4)], 1)
    there = are_rewarded(POSES, TARGETS)
    assert (steps[there] == 0).all()
    assert (steps[~there] == 1 + following[~there].min(axis=1)).all()
    optimal = optimal_pose_actions(POSES, TARGETS)
    assert (optimal == (following == following.min(axis=1, keepdims=True))).all()


def test_steps_are_those_of_enumerating_every_sequence_of_actions():
    poses, targets = random_poses(8_000, seed=12)
    steps = np.maximum(1, steps_to_reward(poses, targets))
    assert (np.minimum(steps, 5) == first_rewards(poses, targets, 4).min(axis=(1, 2))).all()


def test_following_optimal_actions_is_paid_from_then_on():
    steps = np.maximum(1, steps_to_reward(POSES[:400], TARGETS[:400]))
    poses, targets, paid = POSES[:400], TARGETS[:400], np.zeros(400)
    generator = np.random.default_rng(0)
    for _ in range(30):
        optimal = optimal_pose_actions(poses, targets)
        actions = (optimal * (1 + generator.random(optimal.shape))).argmax(axis=1)
        poses, rewards = step_poses(poses, actions.astype(np.uint8), targets)
        paid += rewards
    assert (paid == 31 - steps).all()


@pytest.mark.parametrize("pose", [(np.nan, 3, 0), (3, 3, np.inf), (7, 3, 0)])
def test_a_pose_outside_of_the_room_is_an_error(pose):
    with pytest.raises(ValueError, match="outside"):
        steps_to_reward(np.array([pose], np.float64), np.array([0]))


@pytest.mark.slow
def test_three_steps_lead_to_one_box_only():
    """The paper's N = 3: where a query state has a label, its image alone says which."""
    poses, _ = random_poses(20_000, seed=13)
    targets = np.arange(4).repeat(len(poses))
    steps = steps_to_reward(np.tile(poses, (4, 1)), targets).reshape(4, -1)
    in_reach = {horizon: (steps <= horizon).sum(axis=0) for horizon in (3, 15)}
    assert set(in_reach[3]) == {0, 1}
    assert (in_reach[15] > 1).all()


def test_optimal_labels_need_the_context():
    """In nats: what a label says beyond the pose, and beyond the pose and the target."""
    poses, _ = random_poses(5_000, seed=14)
    targets = np.arange(4).repeat(len(poses))
    optimal = optimal_pose_actions(np.tile(poses, (4, 1)), targets).reshape(4, -1, 4)
    labels = optimal / optimal.sum(axis=2, keepdims=True)

    def entropy(shares):
        return -(shares * np.log(np.maximum(shares, 1e-12))).sum(axis=-1).mean()

    assert entropy(labels) == pytest.approx(0.13, abs=0.02)
    assert entropy(labels.mean(axis=0)) == pytest.approx(0.87, abs=0.02)
