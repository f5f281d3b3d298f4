from functools import partial

import numpy as np
import pytest
from scipy import stats

from sad_hpc.distill.pose_contexts import (
    sample_pose_actions,
    sample_pose_episodes,
    sample_pose_transitions,
)
from sad_hpc.distill.rollout_labels import distill_pose_labels
from sad_hpc.errors import UserError
from sad_hpc.experiment.behavior_policy import policy_table
from sad_hpc.ideal.label_law import best_of, label_chances
from sad_hpc.kernels.random import next_double, stream
from sad_hpc.tasks.miniworld.motion import step_poses
from sad_hpc.tasks.miniworld.room import BOXES, GEOMETRY
from sad_hpc.tasks.miniworld.shortest import optimal_pose_actions
from tests.distill.poses import assert_labels_have_chances, pose_law, random_poses
from tests.distill.rules import make_rule

SHARES = np.array([0.4, 0.1, 0.3, 0.2])
POLICY = policy_table(list(SHARES), 4)
UNIFORM = policy_table("uniform", 4)
TARGETS = np.arange(4000) % 4


rule = partial(make_rule, trust_horizon=3)


def assert_uniform(poses, targets):
    """Position over the free floor, heading over the circle, and the two independent."""
    x, z, heading = poses.T
    assert np.hypot(*(BOXES[targets] - poses[:, :2]).T).min() >= GEOMETRY.contact
    assert min(x.min(), z.min()) >= 0.4 and max(x.max(), z.max()) <= 5.6
    assert heading.min() >= 0 and heading.max() < 2 * np.pi
    others, other_targets = random_poses(len(poses), seed=5)
    for corner in range(4):
        chosen, reference = targets == corner, other_targets == corner
        cells = [np.linspace(0.4, 5.6, 9)] * 2 + [np.linspace(0, 2 * np.pi, 5)]
        table = np.stack(
            [
                np.histogramdd(poses[chosen], cells)[0].ravel(),
                np.histogramdd(others[reference], cells)[0].ravel(),
            ]
        )
        assert stats.chi2_contingency(table[:, table.sum(axis=0) > 0]).pvalue > 1e-3


def test_doubles_are_the_high_53_bits_of_a_word():
    state = stream(0, 0, 0, "transitions")
    before = state.copy()
    value = next_double(state)
    s = [int(word) for word in before]
    total = (s[0] + s[3]) % 2**64
    word = (((total << 23) | (total >> 41)) + s[0]) % 2**64
    assert value == (word >> 11) * 2.0**-53


def test_algorithm_1_draws_poses_uniformly_and_actions_by_the_policy():
    context = sample_pose_transitions(TARGETS, POLICY, 25, stream(0, 0, 0, "transitions"))
    assert context.states.shape == (4000, 25, 3)
    assert_uniform(context.states.reshape(-1, 3), np.repeat(TARGETS, 25))
    counts = np.bincount(context.actions.ravel(), minlength=4)
    assert stats.chisquare(counts, SHARES * counts.sum()).pvalue > 1e-3
    late = context.states[:, 1:, 2].ravel(), context.states[:, :-1, 2].ravel()
    assert abs(np.corrcoef(*late)[0, 1]) < 0.02


def test_transitions_follow_the_room():
    for sample in (sample_pose_transitions, sample_pose_episodes):
        context = sample(TARGETS, POLICY, 20, stream(0, 0, 0, "transitions"))
        after, rewards = step_poses(
            context.states.reshape(-1, 3), context.actions.ravel(), np.repeat(TARGETS, 20)
        )
        assert (after == context.next_states.reshape(-1, 3)).all()
        assert (rewards == context.rewards.ravel()).all()
        assert 0 < rewards.mean() < 0.5


def test_episodes_start_in_the_middle_with_any_heading_and_go_on_from_where_they_are():
    episodes = sample_pose_episodes(TARGETS, UNIFORM, 50, stream(0, 0, 0, "episodes"))
    assert (episodes.states[:, 0, :2] == 3).all()
    assert stats.kstest(episodes.states[:, 0, 2] / (2 * np.pi), "uniform").pvalue > 1e-3
    assert (episodes.states[:, 1:] == episodes.next_states[:, :-1]).all()
    counts = np.bincount(episodes.actions.ravel(), minlength=4)
    assert stats.chisquare(counts).pvalue > 1e-3


def test_pose_action_pairs_are_uniform_too():
    poses, actions = sample_pose_actions(np.repeat(TARGETS, 10), POLICY, stream(0, 0, 0, "dpt"))
    assert_uniform(poses, np.repeat(TARGETS, 10))
    counts = np.bincount(actions, minlength=4)
    assert stats.chisquare(counts, SHARES * counts.sum()).pvalue > 1e-3


@pytest.mark.parametrize("random_ties", [False, True])
@pytest.mark.parametrize("shares", [np.full(4, 0.25), SHARES])
def test_algorithm_5_labels_have_the_enumerated_law(shares, random_ties):
    targets = np.arange(20_000) % 4
    labels = distill_pose_labels(
        targets,
        policy_table(list(shares), 4),
        rule(random_ties=random_ties),
        stream(0, 0, 0, "sad"),
    )
    chances = label_chances(pose_law(labels.query_states, targets, shares), random_ties)
    assert_labels_have_chances(labels.actions, chances)


def test_algorithm_5_query_poses_and_transitions_are_those_of_the_enumeration():
    shares = np.full(4, 0.25)
    targets = np.arange(20_000) % 4
    labels = distill_pose_labels(targets, UNIFORM, rule(), stream(0, 0, 0, "sad"))
    poses, corners = random_poses(100_000, seed=7)
    near = (
        np.linalg.norm(BOXES[corners] - poses[:, :2], axis=1) < GEOMETRY.near + 3 * GEOMETRY.forward
    )
    weights = np.zeros(len(poses))
    steps_spent = np.full(len(poses), 12.0)
    law = pose_law(poses[near], corners[near], shares)
    weights[near] = label_chances(law, False).sum(axis=1)
    steps_spent[near] = (law * [1, 2, 3, 3]).sum(axis=(1, 2))
    # Query poses: like uniform ones, weighted by their chance of acceptance.
    to_query = np.linalg.norm(BOXES[targets] - labels.query_states[:, :2], axis=1)
    to_any = np.linalg.norm(BOXES[corners] - poses[:, :2], axis=1)
    edges = [0.9, 1.2, 1.5, 1.8, 2.1, 2.5, 3.0, 4.5]
    observed, _ = np.histogram(to_query, edges)
    wanted, _ = np.histogram(to_any, edges, weights=weights)
    assert observed.sum() == len(targets)
    shares_wanted = wanted / wanted.sum()
    errors = np.abs(observed / len(targets) - shares_wanted)
    assert (errors < 5 * np.sqrt(shares_wanted / len(targets)) + 0.005).all()
    per_task = steps_spent.mean() / weights.mean()
    assert labels.transitions / len(targets) == pytest.approx(per_task, rel=0.05)


def test_transitions_are_counted_exactly():
    """N = 1: every candidate costs 4 steps, accepted or not; with N_ep = 3 three times as many."""
    for episodes in (1, 3):
        chosen = rule(trust_horizon=1, episodes_per_action=episodes)
        state = stream(0, 0, 0, "sad")
        labels = distill_pose_labels(TARGETS[:50], UNIFORM, chosen, state)
        again = stream(0, 0, 0, "sad")
        candidates = 0
        for target, query in zip(TARGETS[:50], labels.query_states, strict=True):
            pose = None
            while pose is None or (pose != query).any():
                pose = draw(target, again)
                candidates += 1
        assert labels.transitions == 4 * episodes * candidates
        assert (state == again).all()


def draw(target, state):
    while True:
        x, z = (0.4 + (6 - 2 * 0.4) * next_double(state) for _ in range(2))
        if np.hypot(*(BOXES[target] - (x, z))) >= GEOMETRY.contact:
            return np.array([x, z, 2 * np.pi * next_double(state)])


def test_more_episodes_give_better_labels():
    accuracy = []
    for episodes in (1, 4, 32):
        labels = distill_pose_labels(
            TARGETS, UNIFORM, rule(episodes_per_action=episodes), stream(0, 0, 0, "sad")
        )
        optimal = optimal_pose_actions(labels.query_states, TARGETS)
        accuracy.append(optimal[np.arange(len(TARGETS)), labels.actions].mean())
    assert 0.9 < accuracy[0] < accuracy[1] < accuracy[2]
    assert accuracy[2] > 0.99


def test_the_fastest_of_several_episodes_has_the_enumerated_law():
    shares = np.full(4, 0.25)
    targets = np.arange(20_000) % 4
    chosen = rule(episodes_per_action=3, best_episode=True, random_ties=True)
    labels = distill_pose_labels(targets, UNIFORM, chosen, stream(0, 0, 0, "sad"))
    law = best_of(pose_law(labels.query_states, targets, shares), 3)
    assert_labels_have_chances(labels.actions, label_chances(law, random_ties=True))


def test_a_threshold_that_nothing_reaches_is_an_error():
    with pytest.raises(UserError, match="trust_horizon"):
        distill_pose_labels(
            TARGETS[:1],
            UNIFORM,
            rule(stop_at_reward=False, return_threshold=1e9),
            stream(0, 0, 0, "sad"),
        )


def test_rollouts_of_poses_do_not_share_actions():
    with pytest.raises(ValueError, match="do not share actions"):
        distill_pose_labels(TARGETS, UNIFORM, rule(common_actions=True), stream(0, 0, 0, "sad"))
