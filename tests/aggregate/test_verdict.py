"""Verdicts: what the line of a row says, from known returns and known losses."""

from dataclasses import replace

import numpy as np
import pytest

from sad_hpc.aggregate.readme import headline_table
from sad_hpc.aggregate.series import Series
from sad_hpc.aggregate.stage import aggregate
from sad_hpc.aggregate.training import Training
from sad_hpc.aggregate.verdict import Curve, curve_of, is_better, verdict
from sad_hpc.evaluate.result import Measure
from tests.aggregate.synthetic import fill, make_run

FLAT = Curve(epochs=10, lowest=9, rise=0.001, fall=0.0, steps=5000)
RISING = Curve(epochs=20, lowest=3, rise=0.2, fall=0.0, steps=5000)
FALLING = Curve(epochs=20, lowest=20, rise=0.0, fall=0.03, steps=5000)
SHORT = Curve(epochs=2, lowest=2, rise=0.0, fall=0.0, steps=120)


def series(policy, mean, metric="return", seeds=(0,), n_tasks=400) -> Series:
    noise = np.random.default_rng(7).normal(size=(len(seeds), n_tasks))
    steps = np.arange(1, 2, dtype=np.int32)
    return Series(
        policy, policy != "SAD", "online", "all", Measure(metric, "episode", 1), steps, seeds,
        np.full((len(seeds), 1), mean), mean + noise - noise.mean(),
    )  # fmt: skip


def told(mean, curve, *, limit=None, method="SAD", metric="return", settings=None):
    online = {"SAD": series("SAD", mean, metric), "random": series("random", 2.0, metric)}
    if limit is not None:
        online["Bayes-optimal"] = series("Bayes-optimal", limit, metric)
    return verdict(online, "SAD", method, settings or {}, curve)


@pytest.mark.parametrize(
    "mean, curve, limit, words",
    [
        (1.9, RISING, None, ["not better than random play (2.00)", "epoch 3 of 20", "20.0 %"]),
        (2.0, FALLING, None, ["not better", "3.0 % in the last fifth", "pretrain.epochs"]),
        (2.0, SHORT, None, ["not better", "120 steps may be too few"]),
        (2.0, FLAT, None, ["not better", "data.trust_horizon"]),
        (2.0, None, None, ["not better", "data.trust_horizon"]),
        (9.0, FLAT, None, ["9.00, better than random play (2.00)"]),
        (9.0, SHORT, 10.0, ["88 % of the way from random play to the Bayes-optimal learner"]),
        (9.0, FALLING, 10.0, ["88 % of the way", "last fifth"]),
        (9.9, FALLING, 10.0, ["as good as the Bayes-optimal learner"]),
        (2.0, FLAT, 2.0, ["not better than random play (2.00)", "data.trust_horizon"]),
        (9.0, FLAT, 2.0, ["9.00, better than random play (2.00)"]),
        (12.0, FALLING, 10.0, ["12.00, better than the Bayes-optimal learner (10.00)"]),
    ],
)
def test_a_row_is_told_how_far_it_came_and_what_would_help(mean, curve, limit, words):
    line = told(mean, curve, limit=limit)
    assert all(each in line for each in words), line
    assert ("; " in line) == (len(words) > 1 or "not better" in line), "no advice without a cause"


def test_a_row_is_measured_on_its_own_seeds():
    """The tasks of the other seed are worth twice as much to everyone."""
    references = {"random": 2.0, "Bayes-optimal": 10.0}
    online = {"SAD": series("SAD", 9.9)}
    for name, mean in references.items():
        one = series(name, mean, seeds=(0, 1))
        online[name] = replace(one, headlines=one.headlines + np.array([[0.0], [mean]]))
    line = verdict(online, "SAD", "SAD", {}, FLAT)
    assert "as good as the Bayes-optimal learner" in line


def test_regrets_are_better_where_they_are_lower():
    assert "not better than random play" in told(2.5, FLAT, metric="regret")
    assert "50 % of the way" in told(1.5, FLAT, limit=1.0, metric="regret")


def test_rows_that_imitate_random_play_get_no_advice():
    assert told(2.0, RISING, method="DPT").endswith("which its labels imitate")
    assert told(2.0, RISING, method="AD").endswith("which its labels imitate")
    for other in ({"data.q_learning_steps": 1000}, {"data.imported_contexts": "logs-0123456789ab"}):
        assert "imitate" not in told(2.0, RISING, method="AD", settings=other)
    assert not any("imitate" in told(2.0, RISING, method=each) for each in ("DIT", "DPT*", "SAD"))


def test_better_is_two_standard_errors_over_tasks():
    """Against a constant: the mean of 400 values of deviation 1 has the standard error 0.05."""
    chance = series("random", 0.0)
    zero = Series(**{**vars(chance), "headlines": np.zeros_like(chance.headlines)})
    assert not is_better(series("SAD", 0.09), zero)
    assert is_better(series("SAD", 0.11), zero)


def test_seeds_are_the_unit_of_better():
    """Gains of 1 and 3 have a t interval of 2 ± 12.7, whatever the number of tasks."""
    chance, own = (series(name, 0.0, seeds=(0, 1)) for name in ("random", "SAD"))

    def line(*gains: float) -> str:
        gained = chance.headlines + np.array(gains)[:, None]
        online = {"random": chance, "SAD": Series(**{**vars(own), "headlines": gained})}
        return verdict(online, "SAD", "SAD", {}, FLAT)

    assert line(1.0, 3.0).endswith(
        "better than random play (0.00), but not significantly over 2 seeds"
    )
    assert line(1.9, 2.1).endswith("better than random play (0.00)")
    assert "not better than random play" in line(-1.0, -3.0)


def test_curve_is_the_mean_over_seeds():
    losses = np.array([[2.0, 1.0, 1.1, 1.2, 1.3], [2.0, 1.0, 1.3, 1.4, 1.3]])
    curves = {"holdout_loss": losses, "step": np.tile(np.arange(1.0, 6) * 50, (2, 1))}
    found = curve_of(Training("SAD", (0, 1), np.arange(1, 6), curves))
    assert (found.epochs, found.lowest, found.steps) == (5, 2, 250)
    assert found.rise == pytest.approx(0.3) and found.fall == pytest.approx(0)


def test_one_epoch_neither_rises_nor_falls():
    curves = {"holdout_loss": np.ones((1, 1)), "step": np.ones((1, 1))}
    found = curve_of(Training("SAD", (0,), np.array([1]), curves))
    assert (found.rise, found.fall) == (0, 0)


def test_verdicts_follow_the_table_on_the_terminal(tmp_path):
    run = make_run(tmp_path)
    fill(run)
    text = headline_table(aggregate(run, tmp_path / "results"))
    lines = text.rstrip().split("\n\n")[-1]
    assert [line.split()[0] for line in lines.splitlines()] == ["DPT", "DPT*", "SAD"]
    assert "SAD   online return 25.00, better than random play (1.00)" in lines
