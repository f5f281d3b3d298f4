"""What all figures of rows share: panels side by side, bands over seeds, and one legend."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import rc_context, rcdefaults
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from sad_hpc.aggregate.styles import Style, verbatim
from sad_hpc.storage.files import atomic_path

BAR_INCHES = 0.45
"""The least room of a bar, for the number above it."""
LEGEND_INCHES = 1.3
"""A legend's height; where it is higher, so is the figure."""
FEW_POINTS = 12
"""Curves with at most so many points get markers."""


@contextmanager
def drawing(path: Path, size: tuple[float, float]) -> Iterator[Figure]:
    """Give the block a figure, which is written as PNG in one step when the block ends.

    Matplotlib's own default settings are in force: a user's matplotlibrc may ask for LaTeX, which
    a compute node does not have, or for other colours and sizes.

    Args:
        path: of the file.
        size: width and height in inches.
    """
    with rc_context():
        rcdefaults()
        figure = Figure(figsize=size, layout="constrained")
        yield figure
        with atomic_path(path) as temporary:
            figure.savefig(temporary, format="png", dpi=150)


@contextmanager
def drawing_panels(path: Path, n_panels: int, title: str, bars: int = 0) -> Iterator[list[Axes]]:
    """Give the block panels beside each other, with room for so many bars in each; see `drawing`.

    The panels show the same policies: one legend stands below them.
    """
    width = max(4.6 if n_panels > 1 else 7.0, BAR_INCHES * bars) * n_panels
    with drawing(path, (width, 4.6)) as figure:
        figure.suptitle(verbatim(title), fontsize=12)
        panels = [figure.add_subplot(1, n_panels, number + 1) for number in range(n_panels)]
        for axes in panels:
            axes.spines[["top", "right"]].set_visible(False)
            axes.grid(axis="y", color="#E6E6E6", lw=0.8)
            axes.set_axisbelow(True)
        yield panels
        entries: dict[str, Any] = {}
        for axes in panels:
            handles, labels = axes.get_legend_handles_labels()
            entries |= dict(zip(labels, handles, strict=True))
        if entries:
            _add_legend(figure, entries, columns=min(len(entries), 3 if n_panels == 1 else 5))


def draw_band(
    axes: Axes,
    columns: NDArray,
    curves: NDArray[np.float64],
    style: Style,
    label: str,
) -> None:
    """Mean line and band of one standard deviation over the (seeds, K) curves."""
    mean, color = curves.mean(axis=0), style.color
    marker = "o" if len(columns) <= FEW_POINTS else None
    axes.plot(
        columns,
        mean,
        color=color,
        linestyle=style.dashes,
        lw=style.width,
        marker=marker,
        ms=4,
        label=label,
        zorder=style.layer,
    )
    if len(curves) > 1:
        std = curves.std(axis=0, ddof=1)
        axes.fill_between(columns, mean - std, mean + std, color=color, alpha=0.2, lw=0, zorder=2)


def count_along(axes: Axes, label: str) -> None:
    """A horizontal axis that counts from 1."""
    axes.set_xlabel(label)
    axes.margins(x=0.02)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1, steps=[1, 2, 5, 10]))


def share_height(panels: Sequence[Axes]) -> None:
    """Equal value axes, so that panels compare.

    They begin just below 0, so that a line there is seen whole, or where there are costs below the
    lowest.  Logarithmic ones, which have no 0, stay as they are.
    """
    limits = [axes.get_ylim() for axes in panels]
    bottom, top = min(low for low, _ in limits), max(high for _, high in limits)
    if min(axes.dataLim.y0 for axes in panels) >= 0:
        bottom = -0.015 * top
    for axes in panels:
        if axes.get_yscale() == "linear":
            axes.set_ylim(bottom, top)


def _add_legend(figure: Figure, entries: dict[str, Any], columns: int) -> None:
    """In so many columns, or as many as the figure is wide enough for."""
    legend = figure.legend(
        list(entries.values()),
        list(entries),
        loc="outside lower center",
        ncols=columns,
        frameon=False,
        handlelength=3,  # shows dashes, also of wide lines
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
