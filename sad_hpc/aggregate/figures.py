"""The figures of an experiment's evaluation: offline.png, online.png and sweep.png."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from sad_hpc.aggregate.canvas import (
    LEGEND_INCHES,
    MOST_LINES,
    Style,
    add_legend,
    count_along,
    draw_band,
    drawing,
    drawing_panels,
    reference_style,
    row_label,
    row_styles,
    share_height,
    verbatim,
)
from sad_hpc.aggregate.formats import NOT_COMPUTED, Table
from sad_hpc.aggregate.results_file import RowFacts
from sad_hpc.aggregate.series import LIMITS, Series, is_learner
from sad_hpc.aggregate.summary import VIEWS, pick, view_title
from sad_hpc.evaluate.result import BAYES_OPTIMAL, HIGHER_IS_BETTER
from sad_hpc.experiment.methods import BASELINES
from sad_hpc.experiment.rows import method_of, point_name, symbol

METRIC_LABELS = {
    "return": "return (reward per episode)",
    "suboptimality": "suboptimality (reward per pull; optimal: 0)",
    "regret": "cumulative regret (reward; optimal: 0)",
}
AXIS_LABELS = {"context length": "context length (transitions)"}
SUBSET_TITLES = {"all": "all contexts", "reward_seen": "contexts that show a reward"}
LONG_LABEL = 16
"""Labels with more characters stand below their bars at an angle."""
FIRST_ROWS = ("SAD", "SAD+", "DPT*", "DPT*+")
"""Rows with priority if a figure cannot show all."""
WIDE = 8
"""Values that span at least this factor get a logarithmic axis."""

Styles = dict[str, Style]


def draw_offline(path: Path, title: str, series: Sequence[Series]) -> None:
    """Draw offline.png with a panel for each subset: bars for single values, else curves."""
    offline = [one for one in series if one.mode == "offline"]
    subsets = list(dict.fromkeys(one.subset for one in offline))
    as_bars = offline[0].curves.shape[1] == 1
    styles = row_styles(one.policy for one in series if not one.is_reference)
    shown = {subset: distinct([o for o in offline if o.subset == subset]) for subset in subsets}
    bars = max(sum(not one.is_reference for one in each) for each in shown.values())
    title = f"{title}, offline evaluation"
    with drawing_panels(path, len(subsets), title, bars if as_bars else 0) as panels:
        for axes, subset in zip(panels, subsets, strict=True):
            if as_bars:
                _draw_bars(axes, shown[subset], styles)
            else:
                _draw_curves(axes, drawn(shown[subset]), styles)
            if len(panels) > 1:
                axes.set_title(SUBSET_TITLES[subset], fontsize=10)
        share_height(panels)


def draw_online(path: Path, title: str, series: Sequence[Series]) -> None:
    """Draw online.png: the value by episode or pull while the model collects its context."""
    online = [one for one in series if one.mode == "online" and one.subset == "all"]
    styles = row_styles(one.policy for one in series if not one.is_reference)
    measure, steps = online[0].measure, online[0].steps
    with drawing_panels(path, 1, f"{title}, online evaluation") as panels:
        _draw_curves(panels[0], drawn(distinct(online)), styles)
        if measure.headline > 1:
            first = steps[-measure.headline] - 0.5
            label = f"headline: last {measure.headline} {measure.axis}s"
            panels[0].axvspan(first, steps[-1] + 0.5, color="#F0F0F0", zorder=0, lw=0, label=label)
        share_height(panels)


def distinct(series: Sequence[Series]) -> list[Series]:
    """Drop rows whose curves equal those of an earlier row, which they would cover."""
    kept: list[Series] = []
    for one in series:
        if one.is_reference or not any(
            one.seeds == other.seeds and np.array_equal(one.curves, other.curves, equal_nan=True)
            for other in kept
        ):
            kept.append(one)
    return kept


def drawn(series: Sequence[Series]) -> list[Series]:
    """Choose at most MOST_LINES series: references first, then FIRST_ROWS and the best baseline."""
    references = [one for one in series if one.is_reference and _has_place(one)]
    limits = [one for one in references if is_learner(one.policy) or one.policy in LIMITS]
    rows = [one for one in series if not one.is_reference]
    if len(rows) + len(references) > MOST_LINES:
        references = limits[:3]
    room = MOST_LINES - len(references)
    if len(rows) > room:
        rows = sorted(_by_preference(rows)[:room], key=rows.index)
    return [*rows, *references]


def _has_place(one: Series) -> bool:
    """Return whether a curve fits on its axis; a loss of 0 does not fit on a logarithmic one."""
    return HIGHER_IS_BETTER[one.measure.metric] or bool(one.curves.any())


def _by_preference(rows: Sequence[Series]) -> list[Series]:
    sign = 1 if HIGHER_IS_BETTER[rows[0].measure.metric] else -1
    baselines = [one for one in rows if one.policy in BASELINES and method_of(one.policy) != "DPT*"]
    best = max(baselines, key=lambda one: sign * one.statistics.mean, default=None)

    def place(one: Series) -> int:
        if one.policy in FIRST_ROWS:
            return FIRST_ROWS.index(one.policy)
        if one is best:
            return len(FIRST_ROWS)
        return len(FIRST_ROWS) + 1 + (one in baselines)

    return sorted(rows, key=place)


def _draw_bars(axes: Axes, series: Sequence[Series], styles: Styles) -> None:
    """Draw means over seeds with one standard deviation, a dot per seed, and reference lines."""
    rows = [one for one in series if not one.is_reference]
    for position, one in enumerate(rows):
        numbers, style = one.statistics, styles[one.policy]
        if numbers.n_seeds == 0:
            axes.annotate("no entry", (position, 0), ha="center", va="bottom", fontsize=9)
            continue
        error: Any = numbers.std if numbers.n_seeds > 1 else None
        axes.bar(
            position,
            numbers.mean,
            0.62,
            yerr=error,
            color=style.color,
            hatch=style.hatch,
            edgecolor="white",
            lw=0,
            capsize=5,
            ecolor="#222222",
        )
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
        if one.policy in (BAYES_OPTIMAL, *LIMITS) and (numbers := one.statistics).n_seeds:
            axes.axhline(numbers.mean, **reference_style(one.policy))
    labels = [row_label(one.policy, one.statistics.n_seeds) for one in rows]
    if max(map(len, labels), default=0) > LONG_LABEL:
        axes.set_xticks(range(len(rows)), labels, rotation=40, ha="right", fontsize=8)
    else:
        axes.set_xticks(range(len(rows)), [label.replace(" (", "\n(") for label in labels])
    axes.set_xlim(-0.6, len(rows) - 0.4)
    axes.set_ylabel(METRIC_LABELS[series[0].measure.metric])


def _draw_curves(axes: Axes, series: Sequence[Series], styles: Styles) -> None:
    """Draw means over seeds with a band of one standard deviation, references as plain lines.

    Losses have logarithmic axes, which resolve small values.
    """
    measure = series[0].measure
    count_along(axes, AXIS_LABELS.get(measure.axis, measure.axis))
    if not HIGHER_IS_BETTER[measure.metric]:
        axes.set(xscale="log", yscale="log")
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter("{x:g}")
    for one in series:
        if one.is_reference:
            axes.plot(one.steps, one.curves.mean(axis=0), **reference_style(one.policy))
        else:
            label = row_label(one.policy, len(one.seeds))
            draw_band(axes, one.steps, one.curves, styles[one.policy], label)
    axes.set_ylabel(METRIC_LABELS[measure.metric])


def sweep_table(
    rows: Iterable[RowFacts], keys: Sequence[str], summary: pd.DataFrame
) -> pd.DataFrame:
    """Return one line for each point: method, settings, `label accuracy`, and mean of each view.

    A view's columns are its title, such as `online return`, and `online return std`.

    Args:
        rows: the experiment's rows; rows outside of the sweep are skipped.
        keys: dotted keys of the sweep.
        summary: the experiment's summary.
    """
    views = {view: view_title(summary, *view) for view in VIEWS if len(pick(summary, *view))}
    numbers = {(line.row, line.mode, line.subset): line for line in summary.itertuples()}
    points = []
    for row in rows:
        if set(row.settings) != set(keys) or row.row != point_name(row.method, row.settings):
            continue
        point = {"method": row.method, **row.settings, "label accuracy": row.label_accuracy}
        for view, title in views.items():
            if found := numbers.get((row.row, *view)):
                point |= {title: found.mean, f"{title} std": found.std}
        points.append(point)
    table = pd.DataFrame(points)
    for key in keys if points else ():  # as objects, since null would turn integers into floats
        table[key] = pd.Series([point[key] for point in points], dtype=object)
    return table


def _measures(table: pd.DataFrame) -> list[str]:
    """Return the columns to show: label accuracy if it varies, and the mean of each view."""
    accuracy = ["label accuracy"] if table["label accuracy"].nunique() > 1 else []
    return [*accuracy, *(name for name in table if f"{name} std" in table)]


def sweep_cells(table: pd.DataFrame, keys: Sequence[str]) -> Table:
    """Return a sweep's table as text."""
    measures = _measures(table)
    lines = []
    for point in table.to_dict("records"):
        numbers = []
        for name in measures:
            value, std = point[name], point.get(f"{name} std")
            text = NOT_COMPUTED if pd.isna(value) else f"{value:.4g}"
            numbers.append(f"{text} ± {std:.2g}" if std else text)
        lines.append([point["method"], *(str(point[key]) for key in keys), *numbers])
    return ["method", *map(symbol, keys), *measures], lines


def draw_sweep(path: Path, title: str, table: pd.DataFrame, keys: Sequence[str]) -> None:
    """Draw sweep.png: a panel for label accuracy and each view, against the first key.

    Args:
        path: the picture to write.
        title: the environment's title.
        table: the result of `sweep_table`.
        keys: dotted keys of the sweep.
    """
    along, *others = keys
    measures = _measures(table)
    with drawing(path, (4.2 * len(measures) + LEGEND_INCHES, 4.2)) as figure:
        figure.suptitle(verbatim(f"{title}: sweep over {', '.join(map(symbol, keys))}"))
        for number, name in enumerate(measures, start=1):
            axes = figure.add_subplot(1, len(measures), number)
            _draw_panel(axes, table, name, along, others)
            axes.set_ylabel(name)
        add_legend(figure)


def _draw_panel(
    axes: Axes, table: pd.DataFrame, column: str, along: str, others: Sequence[str]
) -> None:
    """Draw one line for each method and combination of the other settings."""
    numeric = all(isinstance(value, int | float) for value in table[along])
    for names, points in table.groupby(["method", *others], sort=False, dropna=False):
        method, *values = names
        settings = [f"{symbol(key)} = {each}" for key, each in zip(others, values, strict=True)]
        axes.errorbar(
            [float(value) if numeric else str(value) for value in points[along]],
            points[column],
            yerr=points.get(f"{column} std"),
            marker="o",
            ms=4,
            capsize=3,
            label=verbatim(", ".join([method, *settings])),
        )
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_xlabel(symbol(along))
    places = sorted(set(table[along].astype(float))) if numeric else []
    if places and 0 < places[0] * WIDE <= places[-1]:
        axes.set_xscale("log")
    if places:  # ticks only at measured values
        axes.set_xticks(places, [f"{value:g}" for value in places])
        axes.minorticks_off()
