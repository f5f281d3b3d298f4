"""The figures of an experiment, one colour a method in all of them."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from sad_hpc.aggregate.paper import family_name
from sad_hpc.aggregate.series import Series
from sad_hpc.aggregate.training import Training
from sad_hpc.experiment.methods import METHODS
from sad_hpc.storage.files import atomic_path

Color = str | tuple[float, float, float, float]

COLORS: dict[str, Color] = {method.name: method.color for method in METHODS.values()}
OTHER_COLORS = colormaps["viridis"]
"""Of variants and points of a sweep, in their order."""
REFERENCE_STYLES = {
    "optimal": ("#000000", (0, (6, 2))),
    "random": ("#7F7F7F", (0, (2, 2))),
    "UCB": ("#4D4D4D", (0, (5, 1, 1, 1))),
    "ideal": ("#999999", (0, (5, 1, 1, 1, 1, 1))),
    "empirical mean": ("#666666", (0, (1, 1))),
}
"""Colour and dashes of the reference policies."""
REFERENCE_NAMES = {"ideal": "ideal learner"}
OTHER_REFERENCE_STYLE = ("#B3B3B3", (0, (3, 3)))
METRIC_LABELS = {
    "return": "return (reward per episode)",
    "suboptimality": "suboptimality (reward per pull)",
    "regret": "cumulative regret (reward)",
}
AXIS_LABELS = {"context length": "context length (transitions)"}
SUBSET_TITLES = {"all": "all contexts", "reward_seen": "contexts that show a reward"}
BAR_INCHES = 0.45
"""The least room of a bar, for the number above it."""
LEGEND_INCHES = 1.3
"""A legend's height; where it is higher, so is the figure."""
LONG_LABEL = 16
"""Names of more letters stand below their bars at an angle."""
FEW_POINTS = 12
"""Curves with at most so many points get markers."""


def draw_offline(path: Path, family: str, series: Sequence[Series]) -> None:
    """offline.png: one panel a subset; bars where a value is one number, else curves."""
    offline = [one for one in series if one.mode == "offline"]
    subsets = list(dict.fromkeys(one.subset for one in offline))
    as_bars = offline[0].curves.shape[1] == 1
    bars = len({one.policy for one in offline if not one.is_reference}) if as_bars else 0
    figure, panels = _figure(len(subsets), f"{family_name(family)}, offline evaluation", bars)
    for axes, subset in zip(panels, subsets, strict=True):
        shown = [one for one in offline if one.subset == subset]
        if as_bars:
            _draw_bars(axes, shown)
        else:
            _draw_curves(axes, shown)
        if len(panels) > 1:
            axes.set_title(SUBSET_TITLES[subset], fontsize=10)
    _share_height(panels)
    _save_with_legend(path, figure, panels)


def draw_online(path: Path, family: str, series: Sequence[Series]) -> None:
    """online.png: value by episode or pull while the model collects its own context."""
    online = [one for one in series if one.mode == "online" and one.subset == "all"]
    figure, panels = _figure(1, f"{family_name(family)}, online evaluation")
    _draw_curves(panels[0], online)
    measure, steps = online[0].measure, online[0].steps
    if measure.headline > 1:
        first = steps[-measure.headline] - 0.5
        label = f"headline: last {measure.headline} {measure.axis}s"
        panels[0].axvspan(first, steps[-1] + 0.5, color="#F0F0F0", zorder=0, lw=0, label=label)
    _share_height(panels)
    _save_with_legend(path, figure, panels)


def draw_training(path: Path, family: str, training: Sequence[Training]) -> None:
    """training.png: loss and label accuracy on held-out training tasks, by epoch."""
    figure, panels = _figure(2, f"{family_name(family)}, pretraining")
    colors = row_colors(one.method for one in training)
    for one in training:
        label = _method_label(one.method, len(one.seeds))
        _draw_band(panels[0], one.epochs, one.holdout_loss, one.method, label, colors)
        _draw_band(panels[1], one.epochs, 100 * one.holdout_accuracy, one.method, label, colors)
    panels[0].set_ylabel("hold-out loss (nats)")
    panels[1].set_ylabel("hold-out label accuracy (%)")
    for axes in panels:
        _count_along(axes, "epoch")
    _save_with_legend(path, figure, panels)


def _figure(n_panels: int, title: str, bars: int = 0) -> tuple[Figure, list[Axes]]:
    width = max(4.6 if n_panels > 1 else 7.0, BAR_INCHES * bars) * n_panels
    figure = Figure(figsize=(width, 4.6), layout="constrained")
    figure.suptitle(title, fontsize=12)
    panels = [figure.add_subplot(1, n_panels, number + 1) for number in range(n_panels)]
    for axes in panels:
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", color="#E6E6E6", lw=0.8)
        axes.set_axisbelow(True)
    return figure, panels


def _draw_bars(axes: Axes, series: Sequence[Series]) -> None:
    """Means over seeds with one standard deviation, a dot a seed, references as lines."""
    methods = [one for one in series if not one.is_reference]
    colors = row_colors(one.policy for one in methods)
    for position, one in enumerate(methods):
        numbers, color = one.statistics, colors[one.policy]
        if numbers.n_seeds == 0:
            axes.annotate("no entry", (position, 0), ha="center", va="bottom", fontsize=9)
            continue
        error: Any = numbers.std if numbers.n_seeds > 1 else None
        axes.bar(position, numbers.mean, 0.62, yerr=error, color=color, capsize=5, ecolor="#222222")
        per_seed = np.nanmean(one.headlines[~np.isnan(one.headlines).all(axis=1)], axis=1)
        spread = position + np.linspace(-0.18, 0.18, len(per_seed))
        axes.scatter(spread, per_seed, s=14, color="white", edgecolor="#222222", lw=0.8, zorder=3)
        top = max(numbers.mean + numbers.std, per_seed.max())
        axes.annotate(
            f"{numbers.mean:.3g}",
            (position, top),
            (0, 6),
            textcoords="offset points",
            ha="center",
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 1},
            zorder=4,
        )
    for one in series:
        if one.is_reference and (numbers := one.statistics).n_seeds:
            axes.axhline(numbers.mean, **_reference_style(one.policy))
    labels = [_method_label(one.policy, one.statistics.n_seeds) for one in methods]
    if max(map(len, labels), default=0) > LONG_LABEL:
        axes.set_xticks(range(len(methods)), labels, rotation=40, ha="right", fontsize=8)
    else:
        axes.set_xticks(range(len(methods)), [label.replace(" (", "\n(") for label in labels])
    axes.set_xlim(-0.6, len(methods) - 0.4)
    axes.set_ylabel(METRIC_LABELS[series[0].measure.metric])


def _draw_curves(axes: Axes, series: Sequence[Series]) -> None:
    """Means over seeds with a band of one standard deviation, references as dashed lines."""
    colors = row_colors(one.policy for one in series if not one.is_reference)
    for one in series:
        columns = one.steps
        if one.is_reference:
            axes.plot(columns, one.curves.mean(axis=0), **_reference_style(one.policy))
        else:
            name = _method_label(one.policy, len(one.seeds))
            _draw_band(axes, columns, one.curves, one.policy, name, colors)
    measure = series[0].measure
    _count_along(axes, AXIS_LABELS.get(measure.axis, measure.axis))
    axes.set_ylabel(METRIC_LABELS[measure.metric])


def _draw_band(
    axes: Axes,
    columns: NDArray,
    curves: NDArray[np.float64],
    method: str,
    label: str,
    colors: Mapping[str, Color],
) -> None:
    """Mean line and band of one standard deviation over the (seeds, K) curves."""
    mean, color = curves.mean(axis=0), colors[method]
    marker = "o" if len(columns) <= FEW_POINTS else None
    # SAD often runs along DPT*, its upper bound: a wide line below a narrow one shows both.
    width, layer = {"SAD": (1.8, 5), "DPT*": (3.6, 3)}.get(method, (1.8, 4))
    axes.plot(columns, mean, color=color, lw=width, marker=marker, ms=4, label=label, zorder=layer)
    if len(curves) > 1:
        std = curves.std(axis=0, ddof=1)
        axes.fill_between(columns, mean - std, mean + std, color=color, alpha=0.2, lw=0, zorder=2)


def _count_along(axes: Axes, label: str) -> None:
    """A horizontal axis that counts from 1."""
    axes.set_xlabel(label)
    axes.margins(x=0.02)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1, steps=[1, 2, 5, 10]))


def row_colors(names: Iterable[str]) -> dict[str, Color]:
    """A method's own colour, and one of a scale for every other row."""
    others = [name for name in dict.fromkeys(names) if name not in COLORS]
    scale = np.linspace(0.05, 0.9, len(others))
    return COLORS | {name: OTHER_COLORS(x) for name, x in zip(others, scale, strict=True)}


def _method_label(method: str, n_seeds: int) -> str:
    return f"{method} ({n_seeds} seed{'' if n_seeds == 1 else 's'})"


def _reference_style(name: str) -> dict[str, Any]:
    color, dashes = REFERENCE_STYLES.get(name, OTHER_REFERENCE_STYLE)
    label = REFERENCE_NAMES.get(name, name)
    return {"color": color, "linestyle": dashes, "lw": 1.6, "label": label}


def _share_height(panels: Sequence[Axes]) -> None:
    """Equal value axes from just below 0, so that panels compare and a line at 0 is seen whole."""
    top = max(axes.get_ylim()[1] for axes in panels)
    for axes in panels:
        axes.set_ylim(-0.015 * top, top)


def save(path: Path, figure: Figure) -> None:
    """Writes a figure as PNG in one step."""
    with atomic_path(path) as temporary:
        figure.savefig(temporary, format="png", dpi=150)


def _save_with_legend(path: Path, figure: Figure, panels: Sequence[Axes]) -> None:
    """One legend below all panels, which show the same policies."""
    entries: dict[str, Any] = {}
    for axes in panels:
        handles, labels = axes.get_legend_handles_labels()
        entries |= dict(zip(labels, handles, strict=True))
    if entries:
        _add_legend(figure, entries, columns=min(len(entries), 3 if len(panels) == 1 else 5))
    save(path, figure)


def _add_legend(figure: Figure, entries: dict[str, Any], columns: int) -> None:
    """In so many columns, or as many as the figure is wide enough for."""
    legend = figure.legend(
        list(entries.values()),
        list(entries),
        loc="outside lower center",
        ncols=columns,
        frameon=False,
        fontsize=9,
    )
    figure.draw_without_rendering()
    room = legend.get_window_extent()
    if columns > 1 and room.width > figure.bbox.width:
        legend.remove()
        _add_legend(figure, entries, columns - 1)
    else:
        figure.set_figheight(
            figure.get_figheight() + max(0, room.height / figure.dpi - LEGEND_INCHES)
        )
