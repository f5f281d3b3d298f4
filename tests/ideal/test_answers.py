"""Bayes-optimal answers: calibrated on the kernels' labels, and better than any other answer."""

import numpy as np
import pytest
from scipy import stats

from sad_hpc.dataset.reader import Arrays
from sad_hpc.distill import make_block
from sad_hpc.experiment.sections import DataConfig
from sad_hpc.ideal.answers import IdealAnswers, ideal_answers
from sad_hpc.ideal.arms import best_arm_probabilities
from sad_hpc.tasks.bandit import GaussianBandit, GaussianBanditConfig
from sad_hpc.tasks.base import TaskFamily, make_family
from sad_hpc.tasks.darkroom import DarkroomConfig
from sad_hpc.tasks.permuted_darkroom import PermutedDarkroomConfig

ROOM = DarkroomConfig(size=3, horizon=8, train_goals=7)
GROUPS = ["labels/sad", "labels/dpt", "labels/dpt_star"]


def made(family: TaskFamily, data: DataConfig, labels: str) -> tuple[Arrays, np.ndarray]:
    arrays = make_block(family, data, "train", 0).arrays
    parts = ("states", "actions", "rewards", "next_states")
    columns = {part: arrays[f"transitions/{part}"] for part in parts}
    columns["query_states"] = arrays[f"{labels}/query_states"]
    columns["parameters"] = arrays["tasks/parameters"]
    return columns, arrays[f"{labels}/actions"][:, 0].astype(int)


def assert_calibrated(probabilities: np.ndarray, labels: np.ndarray) -> None:
    """Labels have the probabilities that were answered, in each tenth of them."""
    n_actions = probabilities.shape[1]
    said = probabilities.ravel()
    came = (labels[:, None] == np.arange(n_actions)).ravel()
    for low in np.arange(0, 1, 0.1):
        here = (said >= low) & (said < low + 0.1)
        if here.sum() > 100:
            error = np.sqrt((said[here] * (1 - said[here])).sum()) / here.sum()
            assert came[here].mean() == pytest.approx(said[here].mean(), abs=4.5 * error + 1e-6)


@pytest.mark.parametrize("labels", GROUPS)
@pytest.mark.parametrize(
    "config, changes",
    [
        (ROOM, {}),
        (ROOM, {"episodes_per_action": 4, "score": "fastest", "tie_break": "random"}),
        (ROOM, {"oracle_tie_break": "lowest"}),
        (PermutedDarkroomConfig(size=3, horizon=8), {"trust_horizon": 6}),
    ],
    ids=["a goal", "the fastest", "x first", "moves"],
)
def test_ideal_answers_are_calibrated_after_every_prefix(config, changes, labels: str):
    family = make_family(config)
    data = DataConfig(**({"tasks": 5000, "trust_horizon": 3, "block_tasks": 8192} | changes))
    columns, actions = made(family, data, labels)
    ideal = ideal_answers(family, data, labels, columns)
    assert ideal is not None and ideal.probabilities.shape[1] == 9
    assert ideal.probabilities.sum(axis=2) == pytest.approx(1)
    for prefix in (0, 3, 8):
        assert_calibrated(ideal.probabilities[:, prefix], actions)


def test_a_query_state_tells_of_the_task_where_labels_are_accepted():
    """SAD's queries are near the goal; an answer that ignores this is worse."""
    family, data = make_family(ROOM), DataConfig(tasks=20_000, trust_horizon=1, block_tasks=32_768)
    columns, actions = made(family, data, "labels/sad")
    ideal = ideal_answers(family, data, "labels/sad", columns)
    assert ideal is not None
    # With N = 1 a query state is accepted if one step leads to the goal: a neighbour, or itself.
    states = columns["query_states"][:, 0].astype(int)
    distances = np.abs(states - columns["parameters"]).sum(axis=1)
    assert distances.max() == 1
    rows = np.arange(len(actions))
    loss = -np.log(ideal.probabilities[rows, 0, actions]).mean()
    same_for_all = np.bincount(actions, minlength=5) / len(actions)
    assert loss < stats.entropy(same_for_all) - 0.1


def test_told_contexts_leave_one_task_and_right_actions_are_optimal():
    family, data = make_family(ROOM), DataConfig(tasks=3000, trust_horizon=3, block_tasks=4096)
    columns, actions = made(family, data, "labels/dpt_star")
    ideal = ideal_answers(family, data, "labels/dpt_star", columns)
    assert ideal is not None
    rows = np.arange(len(actions))
    assert ideal.right[rows, actions].all()
    assert not ideal.told[:, 0].any() and (np.diff(ideal.told.astype(int), axis=1) >= 0).all()
    # A context that shows the reward tells a room's goal: all answers are optimal actions.
    seen = columns["rewards"].any(axis=1)
    assert ideal.told[seen, -1].all() and seen.any()
    wrong = ideal.probabilities[:, -1] * ~ideal.right
    assert wrong[ideal.told[:, -1]].max() == 0


def test_no_answers_where_the_law_of_labels_is_not_known():
    family = make_family(ROOM)
    data = DataConfig(tasks=100, trust_horizon=3, episodes_per_action=2)
    columns, _ = made(family, data, "labels/sad")
    assert ideal_answers(family, data, "labels/sad", columns) is None


def bandit_answers(labels: str, pulls: int = 30) -> tuple[IdealAnswers | None, np.ndarray]:
    family = make_family(GaussianBanditConfig(horizon=40))
    data = DataConfig(tasks=5000, trust_horizon=pulls, block_tasks=8192)
    columns, actions = made(family, data, labels)
    assert isinstance(family, GaussianBandit)
    return ideal_answers(family, data, labels, columns), actions


@pytest.mark.parametrize("labels", ["labels/sad", "labels/dpt_star"])
def test_ideal_answers_of_arms_are_calibrated(labels: str):
    ideal, actions = bandit_answers(labels)
    assert ideal is not None and ideal.probabilities.shape == (4000, 41, 5)
    assert ideal.probabilities[:, 0] == pytest.approx(0.2, abs=1e-4)
    for prefix in (0, 5, 40):
        assert_calibrated(ideal.probabilities[:, prefix], actions)


def test_the_best_of_two_arms_has_the_probability_of_a_normal_difference():
    """With many pulls the bounds of [0, 1] are far, and the difference of scores is normal."""
    rng = np.random.default_rng(0)
    actions = np.tile([0, 1], (3, 50))
    rewards = np.array([0.5, 0.55])[actions] + 0.3 * rng.standard_normal(actions.shape)
    averages = np.stack([rewards[:, ::2].mean(axis=1), rewards[:, 1::2].mean(axis=1)], axis=1)
    for noise in (0.0, 0.1):
        found = best_arm_probabilities(actions, rewards, 2, 0.3, noise)[:, -1, 0]
        spread = np.sqrt(2 * (0.3**2 / 50 + noise**2))
        expected = stats.norm.cdf((averages[:, 0] - averages[:, 1]) / spread)
        assert found == pytest.approx(expected, abs=1e-4)
