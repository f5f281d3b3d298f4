"""The picture rows.png: the headline numbers of the rows of several experiments."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from sad_hpc.aggregate.canvas import add_legend, drawing, reference_style, verbatim
from sad_hpc.aggregate.results_folder import ResultsFolder
from sad_hpc.aggregate.series import is_learner
from sad_hpc.aggregate.summary import pick

ROWS_PICTURE = "rows.png"


class Marker(NamedTuple):
    """The look of one mode's numbers."""

    shape: str
    color: str
    label: str


MARKERS = {
    "offline": Marker("s", "#7F7F7F", "offline"),
    "sampled": Marker("o", "#E69F00", "online, temperature 1"),
    "online": Marker("D", "#0072B2", "online"),
}
"""Markers by mode; `sampled` exists where the acting rule of `online` is another one."""


def draw_rows(path: Path, experiments: Sequence[ResultsFolder]) -> None:
    """Draw mean and 95 % t interval of every row, with a panel for each experiment.

    A panel has the modes with the metric of online play: not the offline suboptimality of bandits.

    Args:
        path: the picture to write.
        experiments: at least one; their rows stand from top to bottom as in their configs.
    """
    rows = [list(dict.fromkeys(each.row for each in one.results.results)) for one in experiments]
    heights = [len(names) for names in rows]
    with drawing(path, (8.0, 1.1 * len(rows) + 0.34 * sum(heights))) as figure:
        panels = figure.subplots(len(rows), squeeze=False, height_ratios=heights)[:, 0]
        for axes, one, names in zip(panels, experiments, rows, strict=True):
            _draw_panel(axes, one.summary, names)
            axes.set_title(verbatim(one.results.title), fontsize=10)
        add_legend(figure)


def _draw_panel(axes: Axes, summary: pd.DataFrame, names: list[str]) -> None:
    places = np.arange(len(names))
    online = pick(summary, "online", "all").set_index("row")
    metric = online["metric"].iloc[0]
    for offset, (mode, marker) in zip((-0.2, 0.0, 0.2), MARKERS.items(), strict=True):
        own = pick(summary[summary["metric"] == metric], mode, "all").set_index("row")
        if own.empty:
            continue
        own = own.reindex(names)
        axes.errorbar(
            own["mean"],
            places + offset,
            xerr=(own["mean"] - own["ci_low"], own["ci_high"] - own["mean"]),
            linestyle="",
            marker=marker.shape,
            color=marker.color,
            ms=5,
            elinewidth=1.2,
            label=marker.label,
        )
    for name in filter(is_learner, online.index):
        look = reference_style(name) | {"label": f"{name}, online"}
        axes.axvline(online.loc[name, "mean"], zorder=1, **look)
    axes.set_yticks(places, [verbatim(name) for name in names])
    axes.set_ylim(len(names) - 0.5, -0.5)  # the first row is at the top
    axes.set_xlabel(metric)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="x", color="#E6E6E6", lw=0.8)
    axes.set_axisbelow(True)
