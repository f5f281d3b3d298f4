"""K labels per task: the paper's for K = 1, and independent draws otherwise."""

import functools
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from sad_hpc.distill import make_block
from sad_hpc.distill.bandits import distill_bandit_labels, pull_arms
from sad_hpc.distill.block import LABELS, Block, Draw
from sad_hpc.distill.contexts import sample_state_actions
from sad_hpc.distill.labels import LabelRule, Labels, optimal_labels
from sad_hpc.distill.pose_contexts import sample_pose_actions
from sad_hpc.distill.rollout_labels import distill_labels, distill_pose_labels
from sad_hpc.distill.tabular import block_tables
from sad_hpc.experiment.families import TaskConfig
from sad_hpc.experiment.sections import DataConfig
from sad_hpc.ideal.label_law import algorithm_5_law, hitting_step_law, label_chances
from sad_hpc.tasks.bandit import BanditFamily, BernoulliBanditConfig, GaussianBanditConfig
from sad_hpc.tasks.base import TaskFamily, make_family
from sad_hpc.tasks.darkroom import DarkroomConfig
from sad_hpc.tasks.miniworld.family import Miniworld, MiniworldConfig
from sad_hpc.tasks.miniworld.shortest import optimal_pose_actions
from sad_hpc.tasks.tabular import TabularFamily
from tests.distill.laws import algorithm_2_law, assert_drawn_from, assert_law
from tests.distill.poses import assert_labels_have_chances, pose_law

DATA = DataConfig(tasks=200, trust_horizon=4, block_tasks=60)
FAMILIES = (DarkroomConfig(), BernoulliBanditConfig(horizon=9), MiniworldConfig(horizon=5))
DARKROOM = make_family(DarkroomConfig(size=4, train_goals=3, horizon=3))
UNIFORM = np.full(5, 0.2)
K = 4


@functools.cache
def darkroom_block() -> Block:
    """12,000 tasks of three goals, with K labels each."""
    data = DataConfig(tasks=64_000, trust_horizon=4, block_tasks=12_000, queries_per_task=K)
    return make_block(DARKROOM, data, "train", 0)


def listed_labels(family: TaskFamily, data: DataConfig) -> dict[str, Labels]:
    """The labels of block 1 by the kernels themselves: of a list in which a task stands K times."""

    def listed(tasks: NDArray[Any]) -> NDArray[Any]:
        return np.array([task for task in tasks for _ in range(data.queries_per_task)])

    draw = Draw.of(family, data, "train", 1, ("tasks", "sad", "dpt", "dpt_star"))
    policy, streams = draw.policy, draw.streams
    rule = LabelRule.of(data, family.sparse_reward)
    if isinstance(family, BanditFamily):
        means = listed(family.draw_means(draw.count, np.random.default_rng(streams["tasks"])))
        arms, pulls = distill_bandit_labels(
            means, family.sigma, policy, data.trust_horizon, False, streams["sad"]
        )
        only = np.zeros((len(means), 1), np.uint8)
        return {
            "sad": Labels(only, arms, pulls),
            "dpt": Labels(only, pull_arms(policy, len(means), streams["dpt"])),
            "dpt_star": Labels(only, means.argmax(axis=1).astype(np.uint8)),
        }
    if isinstance(family, Miniworld):
        parameters = family.parameters("train", draw.first, draw.count)
        targets = listed(parameters[:, 0].astype(np.int64))
        sad = distill_pose_labels(targets, policy, rule, streams["sad"])
        dpt = Labels(*sample_pose_actions(targets, policy, streams["dpt"]))
        star, _ = sample_pose_actions(targets, policy, streams["dpt_star"])
        optimal = optimal_pose_actions(star, targets)
    else:
        assert isinstance(family, TabularFamily)
        tables, mdps = block_tables(family, "train", draw)
        mdps, cells = listed(mdps), family.coordinates
        asked = (tables.mdps, mdps, policy)
        sad = distill_labels(tables.mdps, mdps, policy, rule, streams["sad"])
        sad = Labels(cells[sad.query_states], sad.actions, sad.transitions)
        states, actions = sample_state_actions(*asked, streams["dpt"])
        dpt = Labels(cells[states], actions)
        states, _ = sample_state_actions(*asked, streams["dpt_star"])
        star, optimal = cells[states], tables.optimal[mdps, states]
    best = optimal_labels(optimal, data, np.random.default_rng(streams["dpt_star"]))
    return {"sad": sad, "dpt": dpt, "dpt_star": Labels(star, best)}


@pytest.mark.parametrize("queries", [1, K])
@pytest.mark.parametrize("config", FAMILIES, ids=lambda config: config.family)
def test_labels_are_the_kernels_bit_for_bit(config: TaskConfig, queries: int):
    """K = 1 is the paper's dataset: a plain list of tasks with one label each."""
    family, data = make_family(config), DATA.model_copy(update={"queries_per_task": queries})
    block, expected = make_block(family, data, "train", 1), listed_labels(family, data)
    for name in LABELS:
        states, actions = (block.arrays[f"labels/{name}/{p}"] for p in ("query_states", "actions"))
        assert states.shape[:2] == actions.shape == (60, queries)
        assert states.dtype == expected[name].query_states.dtype
        assert (states.reshape(60 * queries, -1) == expected[name].query_states).all()
        assert (actions.reshape(-1) == expected[name].actions).all()
        assert block.steps[f"labels_{name}"] == expected[name].transitions


@pytest.mark.parametrize("config", FAMILIES, ids=lambda config: config.family)
def test_more_queries_leave_tasks_and_contexts_as_they_are(config: TaskConfig):
    family = make_family(config)
    one = make_block(family, DATA, "train", 1)
    more = make_block(family, DATA.model_copy(update={"queries_per_task": K}), "train", 1)
    for name, array in one.arrays.items():
        if name.startswith("labels/"):
            assert more.arrays[name].dtype == array.dtype
            assert more.arrays[name].shape == (60, K, *array.shape[2:])
        else:
            assert np.array_equal(array, more.arrays[name])
    for purpose in ("transitions", "episodes"):
        assert one.steps[purpose] == more.steps[purpose]


def labels_of(goal: int, label: str) -> Labels:
    """(m, K) state numbers and actions of all tasks of one goal."""
    arrays = darkroom_block().arrays
    assert isinstance(DARKROOM, TabularFamily)
    tasks = (arrays["tasks/parameters"] == DARKROOM.distinct["train"][goal]).all(axis=1)
    assert tasks.sum() == 4000
    states = DARKROOM.state_numbers(arrays[f"labels/{label}/query_states"][tasks])
    return Labels(states, arrays[f"labels/{label}/actions"][tasks])


def joint_law(goal: int, label: str) -> NDArray[np.float64]:
    """(S, A): of a query state and its label, for one goal."""
    assert isinstance(DARKROOM, TabularFamily)
    parameters = DARKROOM.distinct["train"][goal][None]
    if label == "sad":
        return algorithm_5_law(DARKROOM.mdps(parameters), UNIFORM, 4, random_ties=False)
    if label == "dpt":
        return np.full((16, 5), 1 / 80)
    optimal = DARKROOM.optimal_actions(parameters)[0].astype(float)
    return optimal / optimal.sum(axis=1, keepdims=True) / 16


@pytest.mark.parametrize("label", LABELS)
@pytest.mark.parametrize("goal", range(3))
def test_every_query_of_a_task_has_the_exact_law_of_its_task(goal: int, label: str):
    labels, law = labels_of(goal, label), joint_law(goal, label)
    for k in range(K):
        assert_law(Labels(labels.query_states[:, k], labels.actions[:, k]), law)


@pytest.mark.parametrize("label", LABELS)
@pytest.mark.parametrize("goal", range(3))
def test_the_queries_of_a_task_are_independent(goal: int, label: str):
    """The joint law of two of them is the product of their laws: of states, and of actions."""
    labels, law = labels_of(goal, label), joint_law(goal, label)
    for values, one in (
        (labels.query_states, law.sum(axis=1)),
        (labels.actions.astype(np.int64), law.sum(axis=0)),
    ):
        first, second = values[:, ::2].reshape(-1), values[:, 1::2].reshape(-1)
        assert_drawn_from(first * len(one) + second, np.outer(one, one).reshape(-1))


def test_k_queries_take_k_times_the_transitions_of_one():
    """In expectation, by dynamic programming; averaged over the three goals."""
    assert isinstance(DARKROOM, TabularFamily)
    mdps = DARKROOM.mdps(DARKROOM.distinct["train"])
    a_label = []
    for task in range(len(mdps.rewards)):
        law = hitting_step_law(mdps.outcomes.at(task), UNIFORM, 4)
        of_a_candidate = (law * [1, 2, 3, 4, 4]).sum(axis=(1, 2))
        accepted = 1 - law[:, :, -1].prod(axis=-1)
        a_label.append(of_a_candidate.mean() / accepted.mean())
    spent = darkroom_block().steps
    assert spent["labels_sad"] == pytest.approx(12_000 * K * np.mean(a_label), rel=0.01)
    assert spent["labels_dpt"] == spent["labels_dpt_star"] == 0


def test_a_bandits_labels_are_independent_draws_of_algorithm_2():
    """Each with the chance of its own task's means; copies would agree far too often."""
    family = make_family(BernoulliBanditConfig(horizon=5, arms=2))
    data = DataConfig(tasks=1250, trust_horizon=2, block_tasks=1000, queries_per_task=K)
    arrays = make_block(family, data, "train", 0).arrays
    chance = algorithm_2_law(arrays["tasks/parameters"].astype(float), 2, random_ties=False)
    surprise = (arrays["labels/sad/actions"] == 0) - chance[:, None]
    variance = chance * (1 - chance)
    assert (np.abs(surprise.sum(axis=0)) < 4 * np.sqrt(variance.sum())).all()
    # Tasks whose first arm is the likelier label have it more often, each by its own chance.
    assert abs((surprise * (chance - 0.5)[:, None]).sum()) < 4 * np.sqrt(
        K * (variance * (chance - 0.5) ** 2).sum()
    )
    pairs = surprise[:, ::2] * surprise[:, 1::2]
    assert abs(pairs.sum()) < 4 * np.sqrt(K / 2 * (variance**2).sum())


def test_a_bandits_other_labels_are_the_policys_arms_and_the_best_one():
    family = make_family(GaussianBanditConfig(horizon=5))
    data = DataConfig(tasks=5000, trust_horizon=1, block_tasks=4000, queries_per_task=K)
    arrays = make_block(family, data, "train", 0).arrays
    best = arrays["tasks/parameters"].argmax(axis=1)
    assert (arrays["labels/dpt_star/actions"] == best[:, None]).all()
    arms = arrays["labels/dpt/actions"].astype(np.int64)
    pairs = arms[:, ::2] * 5 + arms[:, 1::2]
    assert_drawn_from(pairs.reshape(-1), np.full(25, 1 / 25))
    assert not any(arrays[f"labels/{name}/query_states"].any() for name in LABELS)


@functools.cache
def miniworld_block() -> Block:
    """2,000 rooms with K labels each."""
    family = make_family(MiniworldConfig(horizon=2))
    data = DataConfig(tasks=2500, trust_horizon=3, block_tasks=2000, queries_per_task=K)
    return make_block(family, data, "train", 0)


def test_labels_of_poses_have_the_enumerated_law_of_their_task():
    arrays = miniworld_block().arrays
    targets = np.repeat(arrays["tasks/parameters"][:, 0].astype(np.int64), K)
    poses = arrays["labels/sad/query_states"].reshape(-1, 3)
    chances = label_chances(pose_law(poses, targets, np.full(4, 0.25)), random_ties=False)
    assert_labels_have_chances(arrays["labels/sad/actions"].reshape(-1), chances)


@pytest.mark.parametrize("label", LABELS)
def test_query_poses_of_a_task_are_independent(label: str):
    """No two are equal, and given the target, none tells anything of another."""
    arrays = miniworld_block().arrays
    poses, targets = arrays[f"labels/{label}/query_states"], arrays["tasks/parameters"][:, 0]
    assert len(np.unique(poses.reshape(-1, 3), axis=0)) == 2000 * K
    for corner in range(4):
        here = poses[targets == corner]
        first, second = here[:, ::2].reshape(-1, 3), here[:, 1::2].reshape(-1, 3)
        between = np.corrcoef(first.T, second.T)[:3, 3:]
        assert (np.abs(between) < 4 / np.sqrt(len(first))).all()
