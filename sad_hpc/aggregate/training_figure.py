"""training.png: loss and label accuracy on held-out training tasks, by optimizer step."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import EngFormatter, LogLocator, NullFormatter
from numpy.typing import NDArray

from sad_hpc.aggregate.canvas import (
    Style,
    count_along,
    draw_band,
    drawing_panels,
    row_label,
)
from sad_hpc.aggregate.training import Training


@dataclass(frozen=True)
class Panel:
    """The curves of one measure, for the rows that have it."""

    label: str
    curves: dict[str, NDArray[np.float64]]
    """(seeds, E) curves by row."""
    logarithmic: bool = False


def training_panels(training: Sequence[Training]) -> list[Panel]:
    """Return the panels: excess loss if the Bayes-optimal loss is known, else held-out loss, and
    label accuracies."""
    excess = {one.row: one.excess_loss for one in training if _known(one.excess_loss)}
    others = {one.row: one.holdout_loss for one in training if one.row not in excess}
    accuracy = {one.row: 100 * one.holdout_accuracy for one in training}
    told = {one.row: 100 * one.told_accuracy for one in training if _known(one.told_accuracy)}
    panels = [
        Panel("excess hold-out loss (nats)", excess, logarithmic=True),
        Panel("hold-out loss (nats)", others),
        Panel("hold-out label accuracy (%)", accuracy),
        Panel("accuracy where the context tells the task (%)", told),
    ]
    return [panel for panel in panels if panel.curves]


def distinct_trainings(training: Sequence[Training]) -> list[Training]:
    """Drop rows that share their models with an earlier row."""
    kept: list[Training] = []
    for one in training:
        if not any(np.array_equal(one.holdout_loss, other.holdout_loss) for other in kept):
            kept.append(one)
    return kept


def draw_training(
    path: Path, title: str, training: Sequence[Training], styles: Mapping[str, Style]
) -> None:
    """Draw training.png by optimizer step, or by epoch if a row's steps are unknown.

    Args:
        path: the picture to write.
        title: the environment's title.
        training: the rows to draw.
        styles: the styles of the experiment's rows.
    """
    shown = training_panels(training)
    by_step = all(np.isfinite(one.steps).all() for one in training)
    with drawing_panels(path, len(shown), f"{title}, pretraining") as panels:
        for axes, panel in zip(panels, shown, strict=True):
            for one in training:
                if (curves := panel.curves.get(one.row)) is not None:
                    label = row_label(one.row, len(one.seeds))
                    columns = one.steps if by_step else one.epochs
                    draw_band(axes, columns, curves, styles[one.row], label)
            axes.set_ylabel(panel.label)
            if by_step:
                _along_steps(axes, [one.steps for one in training])
            else:
                count_along(axes, "epoch")
            if panel.logarithmic:
                _by_magnitude(axes, list(panel.curves.values()))


def _along_steps(axes: Axes, steps: Sequence[NDArray[np.float64]]) -> None:
    """Format a logarithmic step axis with common limits, since rows may differ a hundredfold."""
    every = np.concatenate(steps)
    axes.set_xscale("log")
    axes.set_xlim(every.min() / 1.1, every.max() * 1.1)
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 3)))
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlabel("optimizer steps")


def _known(curves: NDArray[np.float64]) -> bool:
    return curves.size > 0 and bool(np.isfinite(curves).all())


def _by_magnitude(axes: Axes, curves: Sequence[NDArray[np.float64]]) -> None:
    """Format a logarithmic axis from just below the least positive mean.

    The excess loss of a converged training varies around 0, where its line leaves the panel.
    """
    means = np.concatenate([each.mean(axis=0) for each in curves])
    axes.set_yscale("log", nonpositive="clip")
    if (positive := means[means > 0]).size:
        axes.set_ylim(positive.min() / 2, positive.max() * 2)
