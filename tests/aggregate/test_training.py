"""Training curves: reading of metrics.jsonl, and the panels of training.png."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

from sad_hpc.aggregate.canvas import row_styles
from sad_hpc.aggregate.training import draw_training, read_epochs, training_curves, training_panels
from sad_hpc.errors import UserError

from .synthetic import make_run, write_metrics


def curves_of(run, elements):
    return training_curves(
        [(row, seed, read_epochs(run.checkpoint(row, seed).path / "metrics.jsonl"))
         for row, seed in elements]
    )  # fmt: skip


def test_training_curves_pass_over_other_and_torn_lines(tmp_path):
    run = make_run(tmp_path)
    write_metrics(run, "SAD", 0, [2.0, 1.0], [0.1, 0.2])
    write_metrics(run, "SAD", 2, [4.0, 3.0, 2.5], [0.3, 0.4, 0.5])
    (training,) = curves_of(run, run.experiment.elements)
    assert (training.row, training.seeds) == ("SAD", (0, 2))
    assert training.epochs.tolist() == [1, 2]
    assert training.curves["holdout_loss"].tolist() == [[2.0, 1.0], [4.0, 3.0]]
    accuracy = np.array([[0.1, 0.2], [0.3, 0.4]], np.float32)
    assert (training.curves["holdout_accuracy"] == accuracy).all()
    assert np.isnan(training.curves["excess_loss"]).all()


def test_repeated_epoch_counts_as_it_was_last(tmp_path):
    run = make_run(tmp_path)
    write_metrics(run, "SAD", 0, [2.0, 1.0], [0.1, 0.2])
    with (run.checkpoint("SAD", 0).path / "metrics.jsonl").open("a") as file:
        file.write('\n{"epoch": 2, "holdout_loss": 0.5, "holdout_accuracy": 0.9}\n')
    (training,) = curves_of(run, [("SAD", 0)])
    assert training.curves["holdout_loss"].tolist() == [[2.0, 0.5]]


def figure_of(
    monkeypatch: pytest.MonkeyPatch, draw: Callable[..., None], *arguments: object
) -> Figure:
    figures: list[Figure] = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, *_, **__: figures.append(figure))
    with pytest.raises(UserError):  # the stand-in writes no file
        draw(Path("figure.png"), "Darkroom", *arguments)
    return figures[0]


def test_the_excess_loss_is_shown_where_the_bayes_optimal_loss_is_known(tmp_path, monkeypatch):
    run = make_run(tmp_path, ["SAD", "DPT"], [0, 1])
    excess = np.array([[0.4, 0.02, -0.001], [0.2, 0.04, 0.003]])
    for seed in (0, 1):
        write_metrics(run, "SAD", seed, [1.0, 0.9, 0.8], [0.3] * 3,
                      excess_loss=excess[seed], step=[100, 200, 300])  # fmt: skip
        write_metrics(run, "DPT", seed, [1.6, 1.6, 1.6], [0.2] * 3, step=[10, 20, 30])
    training = curves_of(run, run.experiment.elements)
    panels = training_panels(training)
    assert [list(panel.curves) for panel in panels] == [["SAD"], ["DPT"], ["SAD", "DPT"]]
    assert [panel.logarithmic for panel in panels] == [True, False, False]
    styles = row_styles(["SAD", "DPT"])
    first, second, _ = figure_of(monkeypatch, draw_training, training, styles).axes
    assert (first.get_yscale(), second.get_yscale(), first.get_xscale()) == ("log", "linear", "log")
    (line,) = first.lines
    assert line.get_ydata() == pytest.approx(excess.mean(axis=0))
    assert list(line.get_xdata()) == [100, 200, 300]
    low, high = first.get_ylim()
    assert 0 < low < 0.001 and 0.3 < high < 1


def test_told_accuracy_has_a_panel_and_missing_steps_make_it_epochs(tmp_path, monkeypatch):
    run = make_run(tmp_path, ["SAD"], [0])
    write_metrics(run, "SAD", 0, [1.0, 0.9], [0.3, 0.4], told_accuracy=[0.8, 0.9])
    training = curves_of(run, run.experiment.elements)
    axes = figure_of(monkeypatch, draw_training, training, row_styles(["SAD", "DPT"])).axes
    assert len(axes) == 3 and axes[0].get_xlabel() == "epoch" and axes[0].get_yscale() == "linear"
    assert axes[2].lines[0].get_ydata() == pytest.approx([80, 90])


def test_validation_curves_have_panels_with_the_epochs_that_were_measured(tmp_path, monkeypatch):
    run = make_run(tmp_path, ["SAD", "DPT"], [0, 1])
    for seed in (0, 1):
        known = {"validation_loss": [None, 2.0 + seed, 4.0], "validation_return": [None, 5.0, seed]}
        write_metrics(run, "SAD", seed, [1.0, 0.9, 0.8], [0.3] * 3, step=[100, 200, 300], **known)
        write_metrics(run, "DPT", seed, [1.6, 1.6, 1.6], [0.2] * 3, step=[100, 200, 300])
    training = curves_of(run, run.experiment.elements)
    panels = training_panels(training)
    assert [panel.label for panel in panels][-2:] == ["validation loss (nats)", "validation return"]
    assert [list(panel.curves) for panel in panels][-2:] == [["SAD"], ["SAD"]]
    styles = row_styles(["SAD", "DPT"])
    *_, loss, returns = figure_of(monkeypatch, draw_training, training, styles).axes
    for axes, expected in ((loss, [2.5, 4.0]), (returns, [5.0, 0.5])):
        (line,) = axes.lines
        assert line.get_xdata().tolist() == [200, 300]
        assert line.get_ydata() == pytest.approx(expected)
