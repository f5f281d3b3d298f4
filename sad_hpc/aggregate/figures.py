"""The figures of an experiment's evaluation: offline.png and online.png."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from sad_hpc.aggregate.canvas import count_along, draw_band, drawing_panels, share_height
from sad_hpc.aggregate.paper import family_name
from sad_hpc.aggregate.series import Series
from sad_hpc.aggregate.styles import method_label, reference_style, row_styles
from sad_hpc.evaluate.result import HIGHER_IS_BETTER

METRIC_LABELS = {
    "return": "return (reward per episode)",
    "suboptimality": "suboptimality (reward per pull; optimal: 0)",
    "regret": "cumulative regret (reward; optimal: 0)",
}
AXIS_LABELS = {"context length": "context length (transitions)"}
SUBSET_TITLES = {"all": "all contexts", "reward_seen": "contexts that show a reward"}
LONG_LABEL = 16
"""Names of more letters stand below their bars at an angle."""


def draw_offline(path: Path, family: str, series: Sequence[Series]) -> None:
    """offline.png: one panel a subset; bars where a value is one number, else curves."""
    offline = [one for one in series if one.mode == "offline"]
    subsets = list(dict.fromkeys(one.subset for one in offline))
    as_bars = offline[0].curves.shape[1] == 1
    bars = len({one.policy for one in offline if not one.is_reference}) if as_bars else 0
    title = f"{family_name(family)}, offline evaluation"
    with drawing_panels(path, len(subsets), title, bars) as panels:
        for axes, subset in zip(panels, subsets, strict=True):
            shown = [one for one in offline if one.subset == subset]
            if as_bars:
                _draw_bars(axes, shown)
            else:
                _draw_curves(axes, shown)
            if len(panels) > 1:
                axes.set_title(SUBSET_TITLES[subset], fontsize=10)
        share_height(panels)


def draw_online(path: Path, family: str, series: Sequence[Series]) -> None:
    """online.png: value by episode or pull while the model collects its own context."""
    online = [one for one in series if one.mode == "online" and one.subset == "all"]
    measure, steps = online[0].measure, online[0].steps
    with drawing_panels(path, 1, f"{family_name(family)}, online evaluation") as panels:
        _draw_curves(panels[0], online)
        if measure.headline > 1:
            first = steps[-measure.headline] - 0.5
            label = f"headline: last {measure.headline} {measure.axis}s"
            panels[0].axvspan(first, steps[-1] + 0.5, color="#F0F0F0", zorder=0, lw=0, label=label)
        share_height(panels)


def _draw_bars(axes: Axes, series: Sequence[Series]) -> None:
    """Means over seeds with one standard deviation, a dot a seed, references as lines."""
    methods = [one for one in series if not one.is_reference]
    styles = row_styles(one.policy for one in methods)
    for position, one in enumerate(methods):
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
        if one.is_reference and (numbers := one.statistics).n_seeds:
            axes.axhline(numbers.mean, **reference_style(one.policy))
    labels = [method_label(one.policy, one.statistics.n_seeds) for one in methods]
    if max(map(len, labels), default=0) > LONG_LABEL:
        axes.set_xticks(range(len(methods)), labels, rotation=40, ha="right", fontsize=8)
    else:
        axes.set_xticks(range(len(methods)), [label.replace(" (", "\n(") for label in labels])
    axes.set_xlim(-0.6, len(methods) - 0.4)
    axes.set_ylabel(METRIC_LABELS[series[0].measure.metric])


def _draw_curves(axes: Axes, series: Sequence[Series]) -> None:
    """Means over seeds with a band of one standard deviation, references as dashed lines.

    Losses, which are better the lower, have logarithmic axes, which tell apart what is near to
    nothing, and the first steps.  Zero cannot be shown there.
    """
    measure = series[0].measure
    count_along(axes, AXIS_LABELS.get(measure.axis, measure.axis))
    if is_loss := not HIGHER_IS_BETTER[measure.metric]:
        axes.set(xscale="log", yscale="log")
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter("{x:g}")
    styles = row_styles(one.policy for one in series if not one.is_reference)
    for one in series:
        columns = one.steps
        if is_loss and not one.curves.any():
            continue
        if one.is_reference:
            axes.plot(columns, one.curves.mean(axis=0), **reference_style(one.policy))
        else:
            name = method_label(one.policy, len(one.seeds))
            draw_band(axes, columns, one.curves, styles[one.policy], name)
    axes.set_ylabel(METRIC_LABELS[measure.metric])
