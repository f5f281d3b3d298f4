"""Series and their statistics: means, intervals, ratios, subsets and the summary."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from sad_hpc.aggregate.series import (
    check_alike,
    describe,
    make_series,
    masked_mean,
    t_interval,
)
from sad_hpc.aggregate.summary import COLUMNS, summary_table
from sad_hpc.errors import UserError
from sad_hpc.evaluate.result_file import read_result

from .synthetic import fill, level, make_run, write_result


def _read(run, elements=None):
    elements = elements or run.experiment.elements
    return [read_result(run.evaluation(*element).path / "result.h5") for element in elements]


def _row(table, method, mode, subset="all"):
    chosen = table[(table["row"] == method) & (table["mode"] == mode) & (table["subset"] == subset)]
    assert len(chosen) == 1
    return chosen.iloc[0]


def test_masked_mean_of_nothing_is_nan():
    values, mask = np.array([[1.0, 3.0], [5.0, 7.0]]), np.array([[True, True], [False, False]])
    assert masked_mean(values, mask, axis=1)[0] == 2.0
    assert np.isnan(masked_mean(values, mask, axis=1)[1])


def test_interquartile_mean_ignores_the_outer_quarters():
    headlines = np.array([[-1000.0, 1.0, 2.0, 3.0], [4.0, 5.0, 6.0, 1e6]])
    assert describe(headlines).iqm == pytest.approx((1.5 + 5.5) / 2)


def test_one_seed_has_no_spread():
    numbers = describe(np.array([[1.0, 2.0, 6.0]]))
    assert (numbers.n_seeds, numbers.mean, numbers.std) == (1, 3.0, 0.0)
    assert np.isnan([numbers.ci_low, numbers.ci_high, numbers.iqm_low, numbers.iqm_high]).all()


def test_mean_and_std_are_over_seeds():
    generator = np.random.default_rng(0)
    headlines = generator.normal(size=(5, 30))
    numbers = describe(headlines)
    assert numbers.mean == pytest.approx(headlines.mean())
    assert numbers.std == pytest.approx(headlines.mean(axis=1).std(ddof=1))
    assert numbers.ci_low < numbers.mean < numbers.ci_high
    assert (numbers.ci_low, numbers.ci_high) == t_interval(headlines.mean(axis=1))


def test_seed_without_entries_is_left_out_and_not_counted():
    numbers = describe(np.array([[1.0, np.nan], [np.nan, np.nan], [3.0, 5.0]]))
    assert (numbers.n_seeds, numbers.mean, numbers.iqm) == (2, 2.5, 2.5)
    nothing = describe(np.full((2, 3), np.nan))
    assert nothing.n_seeds == 0
    assert np.isnan([nothing.mean, nothing.std, nothing.iqm, nothing.ci_low]).all()


def test_the_interval_of_a_mean_is_students():
    values = np.random.default_rng(1).normal(size=8)
    expected = stats.t.interval(0.95, 7, values.mean(), stats.sem(values))
    assert t_interval(values) == pytest.approx(expected)


@pytest.mark.parametrize("n", [2, 5, 10])
def test_intervals_cover_the_true_mean_as_often_as_they_say(n: int):
    generator = np.random.default_rng(2)
    draws = generator.normal(3.0, 1.0, size=(4000, n))
    covered = [low <= 3.0 <= high for low, high in map(t_interval, draws)]
    assert np.mean(covered) == pytest.approx(0.95, abs=0.02)


def test_intervals_of_interquartile_means_cover_them_when_a_replicate_shifts_all_tasks():
    """A model that is better is better on all tasks: tasks of a replicate are not independent."""
    generator = np.random.default_rng(3)
    covered = []
    for _ in range(2000):
        of_replicates = generator.normal(3.0, 2.0, size=(5, 1))
        numbers = describe(of_replicates + generator.normal(0.0, 4.0, size=(5, 60)))
        covered.append(numbers.iqm_low <= 3.0 <= numbers.iqm_high)
    assert np.mean(covered) == pytest.approx(0.95, abs=0.02)


def test_summary_has_known_numbers(tmp_path):
    run = make_run(tmp_path, seeds=(0, 1, 2, 3))
    fill(run)
    table = summary_table("darkroom", "Darkroom", make_series(_read(run)))
    assert tuple(table.columns) == COLUMNS
    assert list(table["row"].unique()) == ["DPT", "DPT*", "SAD", "optimal", "random"]
    for method in run.experiment.by_row:
        expected = np.mean([level(method, seed) for seed in range(4)])
        for mode, subset, offset in [
            ("offline", "all", 0),
            ("offline", "reward_seen", 2),
            ("online", "all", 0),
        ]:
            row = _row(table, method, mode, subset)
            assert row["mean"] == pytest.approx(expected + offset, rel=1e-6)
            assert row["std"] == pytest.approx(np.std([0, 1, 2, 3], ddof=1), rel=1e-5)
            assert row["n_seeds"] == 4
    optimal = _row(table, "optimal", "offline", "reward_seen")
    assert (optimal["mean"], optimal["std"], optimal["n_seeds"]) == (44.5, 0.0, 4)


def test_headline_is_the_mean_of_the_last_columns(tmp_path):
    run = make_run(tmp_path, ["SAD"], [0])
    values = np.array([[100.0, 1.0, 2.0], [100.0, 3.0, 6.0]])
    write_result(run, "SAD", 0, {"values": values}, {"values": values, "headline": 2})
    table = summary_table("darkroom", "Darkroom", make_series(_read(run)))
    assert _row(table, "SAD", "offline")["mean"] == 4.0
    assert _row(table, "SAD", "online")["mean"] == 3.0


def test_reference_counts_once_a_seed_whatever_the_number_of_methods(tmp_path):
    run = make_run(tmp_path, ["SAD", "DPT"], [0, 1])
    one = {"values": np.ones((2, 1))}
    for method, seed in run.experiment.elements:
        if (method, seed) != ("DPT", 1):
            unlike = 0.0 if (method, seed) != ("SAD", 0) else 100.0
            references = {"random": {"offline": [[seed + unlike], [seed + 2.0]]}}
            write_result(run, method, seed, one, one, references=references)
    results = _read(run, [("DPT", 0), ("SAD", 0), ("SAD", 1)])
    (random,) = [one for one in make_series(results) if one.is_reference]
    assert random.seeds == (0, 1)
    assert random.curves.tolist() == [[1.0], [2.0]]


def test_subset_masks_methods_and_references_alike(tmp_path):
    run = make_run(tmp_path, ["SAD"], [0])
    offline = {"values": [[1.0], [5.0], [9.0]], "seen": [[0], [2], [1]]}
    references = {"optimal": {"offline": [[10.0], [20.0], [40.0]]}}
    write_result(run, "SAD", 0, offline, {"values": np.ones((3, 2))}, references=references)
    table = summary_table("darkroom", "Darkroom", make_series(_read(run)))
    assert _row(table, "SAD", "offline", "reward_seen")["mean"] == 7.0
    assert _row(table, "optimal", "offline", "reward_seen")["mean"] == 30.0
    assert _row(table, "optimal", "offline", "all")["mean"] == pytest.approx(70 / 3)
    assert "reward_seen" not in set(table[table["mode"] == "online"]["subset"])


def test_subset_without_entries_is_nan_and_not_zero(tmp_path):
    run = make_run(tmp_path, ["SAD"], [0, 1])
    for seed, seen in [(0, [[0], [0]]), (1, [[1], [0]])]:
        offline = {"values": [[4.0], [6.0]], "seen": seen}
        write_result(run, "SAD", seed, offline, {"values": np.ones((2, 2))})
    both = make_series(_read(run))
    (seen,) = [one for one in both if one.subset == "reward_seen"]
    assert seen.empty_seeds == [0]
    assert np.isnan(seen.curves[0, 0])
    assert (seen.statistics.n_seeds, seen.statistics.mean) == (1, 4.0)


def test_a_subset_that_is_empty_for_all_rows_is_left_out(tmp_path):
    run = make_run(tmp_path, ["SAD", "DPT"], [0])
    for method, seen in (("SAD", [[0], [0]]), ("DPT", [[1], [0]])):
        offline = {"values": [[4.0], [6.0]], "seen": seen}
        write_result(run, method, 0, offline, {"values": np.ones((2, 2))})
    table = summary_table("darkroom", "Darkroom", make_series(_read(run)))
    row = _row(table, "SAD", "offline", "reward_seen")
    assert row["n_seeds"] == 0
    assert np.isnan(row["mean"])
    table = summary_table("darkroom", "Darkroom", make_series(_read(run, [("SAD", 0)])))
    assert set(table["subset"]) == {"all"}


def test_the_bayes_optimal_learner_is_that_of_the_rows_own_files_and_entries(tmp_path):
    run = make_run(tmp_path, ["SAD", "DPT"], [0, 1])
    offline = {"values": [[1.0], [5.0], [9.0]], "seen": [[0], [2], [1]]}
    for number, (method, seed) in enumerate(run.experiment.elements):
        name = {"SAD": "Bayes-optimal", "DPT": "Bayes-optimal, history"}[method]
        references = {
            "optimal": {"offline": [[50.0]] * 3},
            name: {"offline": [[10.0], [20.0 + number], [40.0]]},
        }
        write_result(run, method, seed, offline, {"values": np.ones((3, 2))}, references=references)
    table = summary_table("darkroom", "Darkroom", make_series(_read(run)))
    assert _row(table, "SAD", "offline", "reward_seen")["bayes_optimal"] == pytest.approx(30.25)
    assert _row(table, "DPT", "offline", "reward_seen")["bayes_optimal"] == pytest.approx(31.25)
    assert _row(table, "optimal", "offline")["bayes_optimal"] == pytest.approx((72.0 + 73.0) / 6)
    for name in ("Bayes-optimal", "Bayes-optimal, history"):
        row = _row(table, name, "offline")
        assert row["bayes_optimal"] == pytest.approx(row["mean"])
    assert np.isnan(_row(table, "SAD", "online")["bayes_optimal"])


ONE = {"values": np.ones((4, 1))}
MANY = {"values": np.ones((4, 6)), "headline": 2}


def test_rows_of_a_seed_are_compared_on_the_same_tasks_alone(tmp_path):
    first = read_result(write_result(make_run(tmp_path), "SAD", 0, offline=ONE, online=MANY))
    other = {"parameters": first.tasks["parameters"] + 1}
    check_alike([first, replace(first, row="DPT"), replace(first, seed=1, tasks=other)])
    with pytest.raises(UserError, match="different test tasks"):
        check_alike([first, replace(first, row="DPT", tasks=other)])


@pytest.mark.parametrize(
    "change",
    [
        {"family": "darkroom_large"},
        {"online": {**MANY, "headline": 3}},
        {"offline": MANY},
        {"online": {**MANY, "steps": [1, 2, 3, 4, 5, 7]}},
    ],
)
def test_results_of_different_kinds_are_not_mixed(tmp_path, change):
    run = make_run(tmp_path)
    usual = {"offline": ONE, "online": MANY}
    first = read_result(write_result(run, "SAD", 0, **usual))
    same = read_result(write_result(run, "SAD", 1, **usual))
    other = read_result(write_result(run, "SAD", 2, **(usual | change)))
    check_alike([first, same])
    with pytest.raises(UserError, match="differ"):
        check_alike([first, same, other])
