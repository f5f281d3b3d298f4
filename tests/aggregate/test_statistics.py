import numpy as np
import pytest
from scipy import stats

from sad_hpc.aggregate.series import make_series
from sad_hpc.aggregate.statistics import bootstrap_interval, describe, masked_mean
from sad_hpc.aggregate.summary import COLUMNS, summary_table
from sad_hpc.evaluate.result import read_result

from .synthetic import fill, level, make_run, write_result


def _read(run, elements=None):
    elements = elements or run.experiment.elements
    return [read_result(run.evaluation(*element).path / "result.h5") for element in elements]


def _row(table, method, mode, subset="all"):
    chosen = table[
        (table["method"] == method) & (table["mode"] == mode) & (table["subset"] == subset)
    ]
    assert len(chosen) == 1
    return chosen.iloc[0]


def test_masked_mean_of_nothing_is_nan():
    values, mask = np.array([[1.0, 3.0], [5.0, 7.0]]), np.array([[True, True], [False, False]])
    assert masked_mean(values, mask, axis=1)[0] == 2.0
    assert np.isnan(masked_mean(values, mask, axis=1)[1])


def test_interquartile_mean_ignores_the_outer_quarters():
    headlines = np.array([[-1000.0, 1.0, 2.0, 3.0], [4.0, 5.0, 6.0, 1e6]])
    assert describe(headlines).iqm == pytest.approx((2 + 3 + 4 + 5) / 4)


def test_one_seed_has_no_spread():
    numbers = describe(np.array([[1.0, 2.0, 6.0]]))
    assert (numbers.n_seeds, numbers.mean, numbers.std) == (1, 3.0, 0.0)
    assert (numbers.ci_low, numbers.ci_high) == (3.0, 3.0)


def test_mean_and_std_are_over_seeds():
    generator = np.random.default_rng(0)
    headlines = generator.normal(size=(5, 30))
    numbers = describe(headlines)
    assert numbers.mean == pytest.approx(headlines.mean())
    assert numbers.std == pytest.approx(headlines.mean(axis=1).std(ddof=1))
    assert numbers.ci_low < numbers.mean < numbers.ci_high
    assert (numbers.ci_low, numbers.ci_high) == bootstrap_interval(headlines.mean(axis=1))


def test_seed_without_entries_is_left_out_and_not_counted():
    numbers = describe(np.array([[1.0, np.nan], [np.nan, np.nan], [3.0, 5.0]]))
    assert (numbers.n_seeds, numbers.mean, numbers.iqm) == (2, 2.5, 3.0)
    nothing = describe(np.full((2, 3), np.nan))
    assert nothing.n_seeds == 0
    assert np.isnan([nothing.mean, nothing.std, nothing.iqm, nothing.ci_low]).all()


def test_interval_is_the_percentile_bootstrap():
    values = np.random.default_rng(1).normal(size=8)
    expected = stats.bootstrap((values,), np.mean, method="percentile", n_resamples=20_000)
    interval = bootstrap_interval(values)
    assert interval == pytest.approx(tuple(expected.confidence_interval), abs=0.03)
    assert interval == bootstrap_interval(values)


def test_interval_covers_the_true_mean_about_as_often_as_it_says():
    generator = np.random.default_rng(2)
    draws = generator.normal(3.0, 1.0, size=(300, 30))
    covered = [low <= 3.0 <= high for low, high in map(bootstrap_interval, draws)]
    assert 0.90 <= np.mean(covered) <= 0.98


def test_summary_has_known_numbers(tmp_path):
    run = make_run(tmp_path, seeds=(0, 1, 2, 3))
    fill(run)
    table = summary_table("darkroom", make_series(_read(run), run.experiment.methods))
    assert tuple(table.columns) == COLUMNS
    assert list(table["method"].unique()) == ["SAD", "DPT", "DPT*", "optimal", "random"]
    for method in run.experiment.methods:
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
    table = summary_table("darkroom", make_series(_read(run), ["SAD"]))
    assert _row(table, "SAD", "offline")["mean"] == 4.0
    assert _row(table, "SAD", "online")["mean"] == 3.0


def test_reference_counts_once_a_seed_whatever_the_number_of_methods(tmp_path):
    run = make_run(tmp_path, ["SAD", "DPT"], [0, 1])
    one = {"values": np.ones((2, 1))}
    for method, seed in run.experiment.elements:
        if (method, seed) != ("SAD", 1):
            unlike = 0.0 if (method, seed) != ("DPT", 0) else 100.0
            references = {"random": {"offline": [[seed + unlike], [seed + 2.0]]}}
            write_result(run, method, seed, one, one, references=references)
    results = _read(run, [("SAD", 0), ("DPT", 0), ("DPT", 1)])
    (random,) = [one for one in make_series(results, ["SAD", "DPT"]) if one.is_reference]
    assert random.seeds == (0, 1)
    assert random.curves.tolist() == [[1.0], [2.0]]


def test_subset_masks_methods_and_references_alike(tmp_path):
    run = make_run(tmp_path, ["SAD"], [0])
    offline = {"values": [[1.0], [5.0], [9.0]], "seen": [[0], [2], [1]]}
    references = {"optimal": {"offline": [[10.0], [20.0], [40.0]]}}
    write_result(run, "SAD", 0, offline, {"values": np.ones((3, 2))}, references=references)
    table = summary_table("darkroom", make_series(_read(run), ["SAD"]))
    assert _row(table, "SAD", "offline", "reward_seen")["mean"] == 7.0
    assert _row(table, "optimal", "offline", "reward_seen")["mean"] == 30.0
    assert _row(table, "optimal", "offline", "all")["mean"] == pytest.approx(70 / 3)
    assert "reward_seen" not in set(table[table["mode"] == "online"]["subset"])


def test_subset_without_entries_is_nan_and_not_zero(tmp_path):
    run = make_run(tmp_path, ["SAD"], [0, 1])
    for seed, seen in [(0, [[0], [0]]), (1, [[1], [0]])]:
        offline = {"values": [[4.0], [6.0]], "seen": seen}
        write_result(run, "SAD", seed, offline, {"values": np.ones((2, 2))})
    both = make_series(_read(run), ["SAD"])
    (seen,) = [one for one in both if one.subset == "reward_seen"]
    assert seen.empty_seeds == [0]
    assert np.isnan(seen.curves[0, 0])
    assert (seen.statistics.n_seeds, seen.statistics.mean) == (1, 4.0)
    table = summary_table("darkroom", make_series(_read(run, [("SAD", 0)]), ["SAD"]))
    row = _row(table, "SAD", "offline", "reward_seen")
    assert row["n_seeds"] == 0
    assert np.isnan(row["mean"])
