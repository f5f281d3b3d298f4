"""Figures: choice of lines, styles of rows, and training curves."""

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from cycler import cycler
from matplotlib import rc_context, rcParams
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from sad_hpc.aggregate import canvas
from sad_hpc.aggregate.canvas import (
    COLORS,
    MOST_LINES,
    REFERENCE_STYLES,
    add_legend,
    drawing_panels,
    reference_style,
    row_label,
    row_styles,
    share_height,
)
from sad_hpc.aggregate.figures import _draw_curves, distinct, drawn
from sad_hpc.aggregate.series import Series, reference_order, row_order
from sad_hpc.aggregate.stage import aggregate
from sad_hpc.aggregate.training_figure import draw_training, training_panels
from sad_hpc.errors import UserError
from sad_hpc.evaluate.result import Measure
from sad_hpc.theory.line_worlds import write_line_worlds

from .synthetic import fill, make_run, write_metrics
from .test_read import curves_of


@pytest.mark.parametrize("rows", [2, 8])
def test_a_legend_is_whole_and_in_the_order_of_the_right_ends(rows: int):
    figure = Figure(figsize=(8.0, 4.2), layout="constrained")
    axes = figure.add_subplot()
    names = [f"SAD, N = {row}, N_ep = 256 (2 seeds)" for row in range(rows)]
    for row, name in enumerate(names):
        axes.plot([0, 1], [0, row], label=name)
    add_legend(figure)
    figure.draw_without_rendering()
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == names[::-1]
    room, whole = legend.get_window_extent(), figure.bbox
    assert room.x0 >= whole.x0 and room.x1 <= whole.x1 and room.y0 >= whole.y0
    assert axes.get_window_extent().width / figure.dpi > 3


def series(name: str, curves: object, metric: str = "return") -> Series:
    values = np.asarray(curves, float)
    measure, steps = Measure(metric, "pull", 1), np.arange(1, values.shape[1] + 1, dtype=np.int32)
    is_reference = name in ("optimal", "random", "UCB", "Bayes-optimal")
    kind = (name, is_reference, "online", "all", measure, steps)
    return Series(*kind, tuple(range(len(values))), values, values[:, -1:])


def test_a_panel_has_at_most_eight_lines_of_which_none_covers_another():
    level = {"AD": 1, "DPT": 2, "DIT": 3, "DPT*": 9, "SAD": 7, "SAD+": 8, "DPT*+": 9.5}
    level |= {"SAD+, history": 8, "SAD, N = 3": 5, "SAD, N = 5": 6}
    level |= {"Bayes-optimal": 10, "optimal": 11, "random": 0.5, "UCB": 4}
    every = [series(name, [[0, value], [0, value]]) for name, value in level.items()]
    kept = distinct(every)
    assert [one.policy for one in every if one not in kept] == ["SAD+, history"]
    shown = [one.policy for one in drawn(kept)]
    assert len(shown) == MOST_LINES
    assert shown == ["DIT", "DPT*", "SAD", "SAD+", "DPT*+", "Bayes-optimal", "optimal", "random"]


def test_recipes_have_their_methods_colour_and_dashes_of_their_own():
    names = ["SAD", "SAD+", "SAD+, history", "DPT*+", "SAD, fastest", "SAD, N = 7"]
    styles = row_styles(names)
    own = [styles[name] for name in ("SAD", "SAD+", "SAD+, history")]
    assert {style.color for style in own} == {COLORS["SAD"]}
    assert len({style.dashes for style in own}) == len({style.hatch for style in own}) == 3
    assert (styles["DPT*+"].color, styles["DPT*+"].dashes) == (COLORS["DPT*"], own[1].dashes)
    others = [styles["SAD, fastest"], styles["SAD, N = 7"]]
    assert len({style.color for style in others} | set(COLORS.values())) == len(COLORS) + 2
    assert {style.dashes for style in others} == {"-"}
    assert row_styles(names[:1])["AD"].color == COLORS["AD"]


def test_references_are_grey():
    for name in [*REFERENCE_STYLES, "another"]:
        assert len(set(to_rgb(reference_style(name)["color"]))) == 1


@pytest.mark.parametrize("metric, shown", [("regret", 2), ("return", 3)])
def test_losses_have_logarithmic_axes_without_what_is_zero(metric: str, shown: int):
    axes = Figure().add_subplot()
    curves = {"SAD": np.full((2, 3), 5.0), "optimal": np.zeros((2, 3)), "random": np.ones((2, 3))}
    every = [series(name, each, metric) for name, each in curves.items()]
    _draw_curves(axes, drawn(every), row_styles(["SAD"]))
    assert len(axes.lines) == shown
    scale = "log" if metric == "regret" else "linear"
    assert (axes.get_xscale(), axes.get_yscale()) == (scale, scale)
    share_height([axes])
    low, high = axes.get_ylim()
    assert low < min(line.get_ydata().min() for line in axes.lines) and high > 5


def test_panels_of_costs_show_all_of_them():
    panels = Figure().subplots(1, 2)
    panels[0].bar([0, 1], [-600.0, -200.0])
    panels[1].bar([0, 1], [-300.0, -100.0])
    share_height(panels)
    for axes in panels:
        low, high = axes.get_ylim()
        assert low < -600 and high >= 0


def test_rows_stand_in_the_papers_order_with_recipes_behind():
    names = ["SAD, fastest", "SAD", "SAD+", "DPT*+", "DPT*", "AD", "Bayes-optimal", "optimal"]
    assert row_order(names) == ["AD", "DPT*", "SAD", "SAD+", "DPT*+", "SAD, fastest"]
    found = ["random", "optimal", "UCB", "Bayes-optimal", "Bayes-optimal, history"]
    assert reference_order(found) == [*found[3:], "optimal", "random"]
    assert row_order(swept := ["SAD, N = 7", "SAD, N = 3", "DPT, N = 7"]) == swept


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


FOREIGN_SETTINGS = {
    "text.usetex": True,
    "font.size": 30,
    "figure.facecolor": "black",
    "axes.prop_cycle": cycler(color=["red"]),
    "savefig.format": "svg",
    "figure.autolayout": True,
}


def _pictures(folder: Path, rows: list[str]) -> dict[str, bytes]:
    run = make_run(folder, methods=rows, seeds=[0, 1])
    fill(run)
    made = aggregate(run, folder / "results")
    write_line_worlds(folder)
    paths = [*made.glob("*.png"), *(folder / "theory").glob("*.png")]
    return {path.name: path.read_bytes() for path in paths}


@pytest.mark.slow
def test_a_users_matplotlibrc_changes_no_figure(tmp_path: Path):
    expected = _pictures(tmp_path / "plain", ["SAD", "DPT"])
    with rc_context(FOREIGN_SETTINGS):
        assert _pictures(tmp_path / "own", ["SAD", "DPT"]) == expected
        assert rcParams["text.usetex"] and rcParams["font.size"] == 30
    assert {"offline.png", "online.png", "q_tables.png"} <= set(expected)


def test_a_dollar_sign_in_a_name_begins_no_formula(tmp_path: Path):
    with drawing_panels(tmp_path / "p.png", 1, r"costs $\frac{ 5$") as (axes,):
        axes.plot([0, 1], label=row_label(r"$x_{$", 1))
        axes.axhline(1, **reference_style("$$ $^"))
    assert (tmp_path / "p.png").stat().st_size


def test_the_canvas_alone_makes_figures():
    package = Path(canvas.__file__).parent.parent
    calls = re.compile(r"\bFigure\(|pyplot")
    makers = [path for path in package.rglob("*.py") if calls.search(path.read_text())]
    assert makers == [Path(canvas.__file__)]
