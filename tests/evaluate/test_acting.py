"""Acting rules: the probabilities of actions, and the choice of a rule."""

import numpy as np
import pytest
from scipy import stats

from sad_hpc.errors import ConfigError
from sad_hpc.evaluate.acting import PAPER, ActingRule, Selection, grid, sampled
from sad_hpc.experiment.load import load_experiment
from tests.conftest import TINY

TASKS = np.arange(100)[:, None]
"""100 tasks, all different."""


def softmax(logits: np.ndarray) -> np.ndarray:
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


@pytest.mark.parametrize("shape", [(40, 5), (40, 7, 5), (40, 3, 2, 5)])
@pytest.mark.parametrize("temperature", [1.0, 0.5, 0.02])
@pytest.mark.parametrize("after", [False, True])
def test_probabilities_are_powers_and_certain_where_a_rule_is_greedy(
    shape: tuple[int, ...], temperature: float, after: bool
):
    generator = np.random.default_rng(0)
    logits = generator.normal(size=shape).astype(np.float32)
    rewarded = generator.random(shape[0]) < 0.5
    found = softmax(ActingRule(temperature, after).applied(logits, rewarded))
    power = softmax(logits.astype(np.float64)) ** (1 / temperature)
    expected = power / power.sum(axis=-1, keepdims=True)
    certain = logits == logits.max(axis=-1, keepdims=True)
    if after:
        expected[rewarded] = certain[rewarded]
    np.testing.assert_allclose(found, expected, atol=1e-4)
    always = softmax(ActingRule(0.0, after).applied(logits, rewarded))
    np.testing.assert_array_equal(always, certain)


def test_the_papers_rule_changes_nothing():
    logits = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)
    assert PAPER.applied(logits, np.ones(4, np.bool_)) is logits


def test_samples_follow_the_rule():
    generator = np.random.default_rng(1)
    logits = np.tile(np.float32([0.0, 0.5, 1.0]), (20_000, 1))
    rule = ActingRule(0.25)
    drawn = sampled(rule.applied(logits, np.zeros(20_000, np.bool_)), generator.random(20_000))
    shares = np.bincount(drawn, minlength=3) / 20_000
    np.testing.assert_allclose(shares, softmax(np.array([0.0, 2.0, 4.0])), atol=0.01)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("vectors", [False, True])
def test_each_rule_is_compared_once(sparse: bool, vectors: bool):
    rules = grid(sparse, vectors)
    assert len(set(rules)) == len(rules) and rules[0] == PAPER
    assert any(rule.greedy_after_reward for rule in rules) == sparse
    assert any(rule.mean for rule in rules) == vectors


def test_the_best_rule_is_chosen_where_differences_are_certain():
    rules, noise = grid(False, False)[:4], np.random.default_rng(0).normal(0, 0.1, 100)
    values = np.array([1.0, 3.0, 2.0, 0.5])[:, None] + noise
    assert Selection.of_values(rules, values, TASKS, higher_is_better=True).rule == rules[1]
    assert Selection.of_values(rules, values, TASKS, higher_is_better=False).rule == rules[3]


def test_a_difference_within_its_error_does_not_lower_the_temperature():
    rules = grid(True, False)
    values = np.full((len(rules), 100), 40.0)
    values[0] = 39.0  # temperature 1: certainly worse
    values[9, 7] = 0.0  # greedy after a reward at temperature 1: one task of a hundred
    selection = Selection.of_values(rules, values, TASKS, higher_is_better=True)
    assert selection.rule == rules[9] == ActingRule(1.0, greedy_after_reward=True)
    assert selection.scores[9] == pytest.approx(39.6)
    assert selection.errors is not None and selection.errors[9] == pytest.approx(0.4)
    losses = Selection.of_values(rules, -values, TASKS, higher_is_better=False)
    assert losses.rule == selection.rule and losses.errors == selection.errors


@pytest.mark.parametrize("distinct", [2, 4, 39, 100])
def test_equal_rules_rarely_lower_the_temperature_however_often_tasks_repeat(distinct: int):
    """The difference exceeds its standard error with the probability of Student's t."""
    generator, rules = np.random.default_rng(distinct), grid(False, False)[:2]
    task, chosen = np.arange(100) % distinct, []
    for _ in range(2000):
        values = generator.normal(0, 0.2, (2, 100))
        values[1] += generator.normal(0, 2, distinct)[task]
        chosen.append(Selection.of_values(rules, values, task[:, None], True).chosen)
    expected = stats.t.sf(1, distinct - 1)
    assert np.mean(chosen) == pytest.approx(expected, abs=4 * (expected / 2000) ** 0.5)


def test_errors_count_each_distinct_task_once():
    rules, means = grid(False, False)[:2], np.array([[0.0, 0.0, 0.0], [1.0, 2.0, 6.0]])
    for repeats in (1, 5):
        tasks = np.repeat(np.arange(3), repeats)[:, None]
        selection = Selection.of_values(rules, means.repeat(repeats, axis=1), tasks, True)
        assert selection.errors is not None
        assert selection.errors[0] == pytest.approx(means[1].std(ddof=1) / 3**0.5)
    for parameters in (np.zeros((3, 0)), np.zeros((3, 1))):  # unknown tasks, and only one
        selection = Selection.of_values(rules, means, parameters, True)
        assert selection.errors is not None
        assert selection.errors[0] == pytest.approx(means[1].std(ddof=1) / 3**0.5)


@pytest.mark.parametrize("given", ["evaluate.temperature=0.5", "evaluate.greedy_after_reward=true"])
def test_a_rule_that_auto_would_ignore_is_refused(given: str):
    with pytest.raises(ConfigError, match="acting=auto chooses"):
        load_experiment(TINY, ["evaluate.acting=auto", given])
