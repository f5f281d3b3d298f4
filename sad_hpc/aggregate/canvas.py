"""Common parts of all figures: panels, row styles, bands over seeds, and the legend."""

import io
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import colormaps, rc_context, rcdefaults
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray
from PIL import Image

from sad_hpc.evaluate.result import BAYES_OPTIMAL
from sad_hpc.experiment.methods import METHODS
from sad_hpc.experiment.rows import is_recipe, method_of
from sad_hpc.storage.files import atomic_path

Color = str | tuple[float, float, float, float]
Dashes = str | tuple[int, tuple[float, ...]]

MOST_LINES = 8
"""Most lines in a panel."""
BAR_INCHES = 0.45
"""Least width of a bar, which leaves room for the number above it."""
LEGEND_INCHES = 2.2
FEW_POINTS = 12
"""Curves with at most this number of points get markers."""
DOTS_PER_INCH = 110
LINE_WIDTH = 1.8


@dataclass(frozen=True)
class Style:
    """The look of a row in every figure of its experiment."""

    color: Color
    dashes: Dashes = "-"
    hatch: str | None = None
    """Hatch of the row's bar."""


COLORS: dict[str, Color] = {method.name: method.color for method in METHODS.values()}
PLUS_STYLES: tuple[tuple[Dashes, str], ...] = (
    ((0, (3, 1)), "//"),
    ((0, (1.5, 1.2)), ".."),
    ((0, (6, 1.5, 1.5, 1.5)), "xx"),
)
"""Dashes and hatch of a row such as `SAD+`, then of rows such as `SAD+, history` in their order.
All further ones share the last pair."""
OTHER_COLORS = colormaps["viridis"]
"""Color scale of all other rows and points of a sweep, in their order."""
REFERENCE_STYLES: dict[str, tuple[Color, Dashes]] = {
    BAYES_OPTIMAL: ("#333333", "-"),
    f"{BAYES_OPTIMAL}, history": ("#333333", (0, (8, 1.5, 1.5, 1.5))),
    "optimal": ("#595959", (0, (6, 2))),
    "random": ("#7F7F7F", (0, (2, 2))),
    "UCB": ("#4D4D4D", (0, (5, 1, 1, 1))),
    "LinUCB": ("#4D4D4D", (0, (5, 1, 1, 1, 1, 1))),
    "empirical mean": ("#666666", (0, (1, 1))),
}
"""Color and dashes of the reference policies."""
OTHER_REFERENCE_STYLE: tuple[Color, Dashes] = ("#B3B3B3", (0, (3, 3)))


def row_styles(names: Iterable[str]) -> dict[str, Style]:
    """Return the style of each row of an experiment.

    Each method has a color.  `SAD+` and rows whose names begin so have the color of SAD with other
    dashes.  All other rows have colors of a scale.
    """
    distinct = list(dict.fromkeys(names))
    own = {name: Style(color) for name, color in COLORS.items()}
    recipes = [name for name in distinct if is_recipe(name)]
    for name in recipes:
        method = method_of(name) or ""
        variants = [each for each in recipes if method_of(each) == method and "," in each]
        before = 1 + variants.index(name) if name in variants else 0
        dashes, hatch = PLUS_STYLES[min(before, len(PLUS_STYLES) - 1)]
        own[name] = Style(COLORS[method], dashes, hatch)
    others = [name for name in distinct if name not in own]
    steps = max(1, len(others) - 1)
    scale = [0.05 + 0.85 * number / steps for number in range(len(others))]
    return own | {name: Style(OTHER_COLORS(x)) for name, x in zip(others, scale, strict=True)}


def row_label(row: str, n_seeds: int) -> str:
    """Return a label such as `SAD (4 seeds)`."""
    return verbatim(f"{row} ({n_seeds} seed{'' if n_seeds == 1 else 's'})")


def verbatim(text: str) -> str:
    """Return text that matplotlib shows unchanged, with dollar signs escaped."""
    return text.replace("$", r"\$")


def reference_style(name: str) -> dict[str, Any]:
    """Return matplotlib's arguments for a reference's line, with its label."""
    color, dashes = REFERENCE_STYLES.get(name, OTHER_REFERENCE_STYLE)
    return {"color": color, "linestyle": dashes, "lw": LINE_WIDTH, "label": verbatim(name)}


_renders = ContextVar("_renders", default=True)


@contextmanager
def keeping_pictures() -> Iterator[None]:
    """Leave all pictures as they are while the block makes pages: rendering takes most time."""
    before = _renders.set(False)
    try:
        yield
    finally:
        _renders.reset(before)


@contextmanager
def drawing(path: Path, size: tuple[float, float]) -> Iterator[Figure]:
    """Yield a figure, and write it as PNG atomically when the block ends.

    The picture has at most 256 colors.  Matplotlib's default settings replace the user's
    matplotlibrc, which may ask for LaTeX or other colors.

    Args:
        path: the file to write.
        size: width and height in inches.
    """
    with rc_context():
        rcdefaults()
        figure = Figure(figsize=size, layout="constrained")
        yield figure
        if not _renders.get():
            return
        picture = io.BytesIO()
        figure.savefig(picture, format="png", dpi=DOTS_PER_INCH)
    with atomic_path(path) as temporary, Image.open(picture) as image:
        small = image.convert("RGB").quantize(256, dither=Image.Dither.NONE)
        small.save(temporary, format="png", optimize=True)


@contextmanager
def drawing_panels(path: Path, n_panels: int, title: str, bars: int = 0) -> Iterator[list[Axes]]:
    """Yield panels side by side, each with room for `bars` bars; see `drawing`.

    One legend stands at the right of all panels.
    """
    width = max(4.6 if n_panels > 1 else 6.0, BAR_INCHES * bars) * n_panels + LEGEND_INCHES
    with drawing(path, (width, 4.2)) as figure:
        figure.suptitle(verbatim(title), fontsize=12)
        panels = [figure.add_subplot(1, n_panels, number + 1) for number in range(n_panels)]
        for axes in panels:
            axes.spines[["top", "right"]].set_visible(False)
            axes.grid(axis="y", color="#E6E6E6", lw=0.8)
            axes.set_axisbelow(True)
        yield panels
        add_legend(figure)


def draw_band(
    axes: Axes, columns: NDArray, curves: NDArray[np.float64], style: Style, label: str
) -> None:
    """Draw the mean of (seeds, K) curves and a band of one standard deviation."""
    mean = curves.mean(axis=0)
    axes.plot(
        columns,
        mean,
        color=style.color,
        linestyle=style.dashes,
        lw=LINE_WIDTH,
        marker="o" if len(columns) <= FEW_POINTS else None,
        ms=4,
        label=label,
        zorder=4,
    )
    if len(curves) > 1:
        std = curves.std(axis=0, ddof=1)
        look: Any = {"color": style.color, "alpha": 0.2, "lw": 0, "zorder": 2}
        axes.fill_between(columns, mean - std, mean + std, **look)


def count_along(axes: Axes, label: str) -> None:
    """Format a horizontal axis that counts from 1."""
    axes.set_xlabel(label)
    axes.margins(x=0.02)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1, steps=[1, 2, 5, 10]))


def share_height(panels: Sequence[Axes]) -> None:
    """Give linear value axes equal limits, so that panels compare.

    Without negative values the axes begin just below 0, so that a line at 0 is fully visible.
    """
    limits = [axes.get_ylim() for axes in panels]
    bottom, top = min(low for low, _ in limits), max(high for _, high in limits)
    if min(axes.dataLim.y0 for axes in panels) >= 0:
        bottom = -0.015 * top
    for axes in panels:
        if axes.get_yscale() == "linear":
            axes.set_ylim(bottom, top)


def add_legend(figure: Figure) -> None:
    """Add one legend at the right of all panels.

    Lines are sorted by the height of their right ends in the last panel that shows them.  All other
    entries stand below.
    """
    entries: dict[str, Any] = {}
    ends: dict[str, float] = {}
    for axes in figure.axes:
        handles, labels = axes.get_legend_handles_labels()
        entries |= dict(zip(labels, handles, strict=True))
        for line in axes.lines:
            heights = np.asarray(line.get_ydata(), np.float64)
            heights = heights[np.isfinite(heights)]
            if len(heights):
                ends[str(line.get_label())] = float(heights[-1])
    if not entries:
        return
    ordered = sorted(entries, key=lambda label: -ends.get(label, -np.inf))
    figure.legend(
        [entries[label] for label in ordered],
        ordered,
        loc="outside right upper",
        frameon=False,
        handlelength=2.6,  # shows dashes
        fontsize=9,
    )
