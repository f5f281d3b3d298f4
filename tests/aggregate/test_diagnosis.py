"""Diagnosis: online returns by the rewards in the context."""

from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

from sad_hpc.aggregate.canvas import row_styles
from sad_hpc.aggregate.diagnosis import (
    bin_names,
    bins,
    diagnose,
    diagnosis_cells,
    draw_diagnosis,
)
from sad_hpc.errors import UserError
from sad_hpc.evaluate.result import ModeResult, Result

from .synthetic import mode_result


def result(row: str, seed: int, online: ModeResult) -> Result:
    offline = mode_result(np.ones((len(online.values), 1)), {})
    modes = {"offline": offline, "online": online}
    return Result(Path("result.h5"), row, seed, "darkroom", "0" * 12, modes)


def online(values: object, seen: object, learner: object = None, learner_seen: object = None):
    references = {} if learner is None else {"Bayes-optimal": learner}
    mode = mode_result(values, references, seen=seen, headline=1)
    if learner_seen is not None:
        mode.reference_context_rewards["Bayes-optimal"] = np.asarray(learner_seen, np.int32)
    return mode


@pytest.mark.parametrize(
    ("horizon", "expected"),
    [
        (49, ["0", "1-2", "3-8", "9-20", "21-30", "31-40", "41-49"]),
        (61, ["0", "1-2", "3-8", "9-20", "21-30", "31-40", "41-60", "61"]),
        (100, ["0", "1-2", "3-8", "9-20", "21-30", "31-40", "41-60", "61-100"]),
        (8, ["0", "1-2", "3-8"]),
        (1, ["0", "1"]),
    ],
)
def test_bins_hold_every_number_of_rewards_once(horizon: int, expected: list[str]):
    assert bin_names(horizon) == expected
    numbers = [number for a, b in bins(horizon) for number in range(a, b + 1)]
    assert numbers == list(range(horizon + 1))


def test_returns_are_means_of_their_bin_over_tasks_late_episodes_and_seeds():
    generator = np.random.default_rng(0)
    values = generator.random((2, 30, 40)).astype(np.float32)
    seen = generator.integers(0, 50, (2, 30, 40))
    values[:, :, :10] = 1e6  # the first ten episodes do not count
    results = [result("SAD", seed, online(values[seed], seen[seed])) for seed in range(2)]
    (found,) = diagnose(results, 49)
    assert (found.policy, found.is_reference, found.seeds) == ("SAD", False, (0, 1))
    late, rewards = values[:, :, 10:], seen[:, :, 10:]
    for number, (a, b) in enumerate(bins(49)):
        inside = (rewards >= a) & (rewards <= b)
        assert found.returns[number] == pytest.approx(late[inside].mean(), rel=1e-5)
        assert found.shares[number] == pytest.approx(inside.mean())
    assert found.without_reward == pytest.approx((seen == 0).mean(axis=1))
    cells = diagnosis_cells([found], 49)
    assert sum(float(line[3].removesuffix(" %")) for line in cells) == pytest.approx(100, abs=1)
    assert cells[1][:2] == ["SAD", "1-2"]


def test_a_bayes_optimal_learner_counts_once_a_seed_and_by_its_own_contexts():
    values, seen = np.zeros((4, 20)), np.zeros((4, 20))
    modes = [online(values, seen, np.full((4, 20), 40.0 + n), np.full((4, 20), 45)) for n in (0, 9)]
    results = [result("SAD", 0, modes[0]), result("DPT*+", 0, modes[1])]
    found = diagnose(results, 49)
    assert [(one.policy, one.is_reference) for one in found] == [
        ("SAD", False), ("DPT*+", False), ("Bayes-optimal", True),
    ]  # fmt: skip
    assert found[-1].seeds == (0,) and found[-1].returns[-1] == 40.0
    assert np.isnan(found[-1].returns[:-1]).all() and found[0].returns[0] == 0.0
    assert (found[-1].without_reward == 0).all() and (found[0].without_reward == 1).all()


def test_a_memory_of_more_than_a_context_is_in_the_last_bin():
    mode = online(np.zeros((1, 20)), np.zeros((1, 20)), np.ones((1, 20)), np.full((1, 20), 900))
    assert diagnose([result("SAD", 0, mode)], 49)[-1].shares[-1] == 1


def test_where_rewards_are_not_counted_there_is_nothing():
    assert diagnose([result("SAD", 0, mode_result(np.ones((3, 20)), {}))], 49) == []


def test_the_figure_shows_rows_and_the_bayes_optimal_learner(monkeypatch: pytest.MonkeyPatch):
    seen = np.tile(np.arange(20), (5, 1))
    mode = online(np.tile(np.arange(20.0), (5, 1)), seen, np.full((5, 20), 15.0), seen)
    found = diagnose([result("SAD", 0, mode), result("SAD+", 0, mode)], 49)
    figures: list[Figure] = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, *_, **__: figures.append(figure))
    with pytest.raises(UserError):  # the stand-in writes no file
        draw_diagnosis(Path("diagnosis.png"), "Darkroom", found, 49, row_styles(["SAD", "SAD+"]))
    left, right = figures[0].axes
    names = ["SAD (1 seed)", "SAD+ (1 seed)", "Bayes-optimal"]
    assert [line.get_label() for line in left.lines] == names
    sad, recipe, ideal = left.lines
    assert sad.get_ydata()[3] == np.arange(10, 20).mean()  # 9 to 20 rewards after episode 10
    assert sad.get_color() == recipe.get_color() != ideal.get_color()
    assert sad.get_linestyle() != recipe.get_linestyle()
    assert right.lines[0].get_ydata()[:2].tolist() == [100.0, 0.0]
