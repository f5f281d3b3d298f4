"""training.png: how far every row's training has come."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import EngFormatter, LogLocator, NullFormatter
from numpy.typing import NDArray

from sad_hpc.aggregate.canvas import count_along, draw_band, drawing_panels
from sad_hpc.aggregate.paper import family_name
from sad_hpc.aggregate.styles import method_label, row_styles
from sad_hpc.aggregate.training import Training


@dataclass(frozen=True)
class Panel:
    """One measure of the rows that have it."""

    label: str
    curves: dict[str, NDArray[np.float64]]
    """(seeds, E) by row."""
    logarithmic: bool = False


def training_panels(training: Sequence[Training]) -> list[Panel]:
    """On held-out training tasks: the excess loss of the rows that have an ideal, the loss of the
    others, and label accuracies."""
    excess = {one.method: one.excess_loss for one in training if _known(one.excess_loss)}
    others = {one.method: one.holdout_loss for one in training if one.method not in excess}
    accuracy = {one.method: 100 * one.holdout_accuracy for one in training}
    told = {one.method: 100 * one.told_accuracy for one in training if _known(one.told_accuracy)}
    panels = [
        Panel("hold-out loss beyond the ideal learner's (nats)", excess, logarithmic=True),
        Panel("hold-out loss (nats)", others),
        Panel("hold-out label accuracy (%)", accuracy),
        Panel("the same, where the context tells the task (%)", told),
    ]
    return [panel for panel in panels if panel.curves]


def draw_training(path: Path, family: str, training: Sequence[Training]) -> None:
    """training.png, by optimizer step, or by epoch where a row's steps were not written."""
    shown = training_panels(training)
    by_step = all(np.isfinite(one.steps).all() for one in training)
    styles = row_styles(one.method for one in training)
    with drawing_panels(path, len(shown), f"{family_name(family)}, pretraining") as panels:
        for axes, panel in zip(panels, shown, strict=True):
            for one in training:
                if (curves := panel.curves.get(one.method)) is not None:
                    label = method_label(one.method, len(one.seeds))
                    columns = one.steps if by_step else one.epochs
                    draw_band(axes, columns, curves, styles[one.method], label)
            axes.set_ylabel(panel.label)
            if by_step:
                _along_steps(axes, [one.steps for one in training])
            else:
                count_along(axes, "epoch")
            if panel.logarithmic:
                _by_magnitude(axes, list(panel.curves.values()))


def _along_steps(axes: Axes, steps: Sequence[NDArray[np.float64]]) -> None:
    """A logarithmic axis, the same in all panels: rows may differ a hundredfold."""
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
    """A logarithmic axis from just below the least positive mean.

    Where a training is at its ideal, noise takes the difference to 0 and below: there its line
    leaves the panel.
    """
    means = np.concatenate([each.mean(axis=0) for each in curves])
    axes.set_yscale("log", nonpositive="clip")
    if (positive := means[means > 0]).size:
        axes.set_ylim(positive.min() / 2, positive.max() * 2)
