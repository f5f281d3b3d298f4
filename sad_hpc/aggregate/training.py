"""Training curves: the reader of `metrics.jsonl`, and training.png.

The curves are loss and label accuracy on held-out training tasks, epoch by epoch, and loss and
offline return on validation tasks, in the epochs in which they were measured.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import reduce
from math import nan
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import EngFormatter, LogLocator, NullFormatter
from numpy.typing import NDArray
from pydantic import Field

from sad_hpc.aggregate.canvas import (
    Style,
    count_along,
    draw_band,
    drawing_panels,
    row_label,
)
from sad_hpc.aggregate.results_file import ExperimentResults
from sad_hpc.errors import DivergedError
from sad_hpc.storage.json_files import read_json_lines, typed
from sad_hpc.storage.stage_folder import METRICS

Epochs = Mapping[str, NDArray[Any]]
"""One model's curves: `epochs` (E,) int32, and (E,) float32 of each of CURVES that was measured."""


@dataclass(frozen=True)
class _Line:
    """A line of the file: the curves in one epoch; NaN if they were not measured."""

    epoch: Annotated[int, Field(ge=0, lt=2**31)]
    holdout_loss: float
    """Nats."""
    holdout_accuracy: float = nan
    """Fraction of labels."""
    excess_loss: float = nan
    """Nats: the held-out loss minus that of the Bayes-optimal learner."""
    told_accuracy: float = nan
    """Label accuracy over contexts that identify the task."""
    validation_loss: float = nan
    """Nats."""
    validation_return: float = nan
    """Mean offline return."""
    step: float = nan
    """Optimizer steps until the end of the epoch."""


CURVES = [field.name for field in fields(_Line) if field.name != "epoch"]


@dataclass(frozen=True)
class Training:
    """One row's training curves."""

    row: str
    seeds: tuple[int, ...]
    epochs: NDArray[np.int64]
    """(E,): the epochs that all seeds have, from 1."""
    curves: Mapping[str, NDArray[np.float64]]
    """(seeds, E) for each of CURVES; NaN if a seed has not measured it."""

    @property
    def steps(self) -> NDArray[np.float64]:
        """(E,): optimizer steps until the end of each epoch, which do not depend on the seed."""
        return self.curves["step"][0]


def read_finite_epochs(folder: Path) -> Epochs:
    """Return the curves in a model's folder; see `read_epochs`.

    Raises:
        DivergedError: the training has diverged.
    """
    epochs = read_epochs(folder / METRICS)
    if epochs and not np.isfinite(epochs.get("holdout_loss", nan)).all():
        raise DivergedError(
            f"{folder / METRICS} has losses that are not finite: the training has diverged. "
            f"Remove {folder} and its evaluation, {DivergedError.REMEDY}"
        )
    return epochs


def read_epochs(path: Path) -> Epochs:
    """Return the curves in a metrics file; empty if the file is missing.

    Invalid lines are skipped.  If an epoch was repeated after a resume, its last line counts.
    """
    try:
        records = [typed(_Line, line) for line in read_json_lines(path)]
    except OSError:
        return {}
    found = {record.epoch: record for record in records if record is not None}
    if not found:
        return {}
    curves = {name: [getattr(record, name) for record in found.values()] for name in CURVES}
    measured = {name: curve for name, curve in curves.items() if not np.isnan(curve).all()}
    return {
        "epochs": np.array(list(found), np.int32),
        **{name: np.array(curve, np.float32) for name, curve in measured.items()},
    }


def trainings_of(found: ExperimentResults) -> list[Training]:
    """Return the training curves of each row of an experiment; see `training_curves`."""
    return training_curves(
        (each.result.row, each.result.seed, each.training) for each in found.seeds
    )


def training_curves(seeds: Iterable[tuple[str, int, Epochs]]) -> list[Training]:
    """Return the training curves of each row.

    Args:
        seeds: row, seed and curves of each trained model; models without curves are skipped.
    """
    found: dict[str, dict[int, Epochs]] = {}
    for row, seed, epochs in seeds:
        if epochs:
            found.setdefault(row, {})[seed] = epochs
    return [_of_row(row, models) for row, models in found.items()]


def _of_row(row: str, models: dict[int, Epochs]) -> Training:
    common = reduce(np.intersect1d, [epochs["epochs"] for epochs in models.values()])
    curves = {
        name: np.stack([_at(common, epochs, name) for epochs in models.values()]) for name in CURVES
    }
    return Training(row, tuple(models), common, curves)


def _at(common: NDArray[Any], epochs: Epochs, name: str) -> NDArray[np.float64]:
    """Return a curve of one model in the given epochs; NaN if it was not measured."""
    if name not in epochs:
        return np.full(len(common), nan)
    places = np.intersect1d(epochs["epochs"], common, return_indices=True)[1]
    return epochs[name][places].astype(np.float64)


@dataclass(frozen=True)
class Panel:
    """The curves of one measure, for the rows that have it."""

    label: str
    curves: dict[str, NDArray[np.float64]]
    """(seeds, E) curves by row."""
    logarithmic: bool = False


def training_panels(training: Sequence[Training]) -> list[Panel]:
    """Return the panels: excess loss if the Bayes-optimal loss is known, else held-out loss, label
    accuracies, and loss and return on validation tasks."""
    excess = _known(training, "excess_loss")
    loss = {one.row: one.curves["holdout_loss"] for one in training if one.row not in excess}
    accuracy = {one.row: 100 * one.curves["holdout_accuracy"] for one in training}
    told = {row: 100 * curves for row, curves in _known(training, "told_accuracy").items()}
    panels = [
        Panel("excess hold-out loss (nats)", excess, logarithmic=True),
        Panel("hold-out loss (nats)", loss),
        Panel("hold-out label accuracy (%)", accuracy),
        Panel("accuracy where the context tells the task (%)", told),
        Panel("validation loss (nats)", _measured(training, "validation_loss")),
        Panel("validation return", _measured(training, "validation_return")),
    ]
    return [panel for panel in panels if panel.curves]


def distinct_trainings(training: Sequence[Training]) -> list[Training]:
    """Drop rows that share their models with an earlier row."""
    kept: list[Training] = []
    for one in training:
        losses = [other.curves["holdout_loss"] for other in kept]
        if not any(np.array_equal(one.curves["holdout_loss"], each) for each in losses):
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
                    known = np.isfinite(curves).all(axis=0)
                    draw_band(axes, columns[known], curves[:, known], styles[one.row], label)
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


def _known(training: Sequence[Training], name: str) -> dict[str, NDArray[np.float64]]:
    """Return a curve of the rows that have it in every epoch of every seed."""
    curves = {one.row: one.curves[name] for one in training}
    return {row: each for row, each in curves.items() if each.size and np.isfinite(each).all()}


def _measured(training: Sequence[Training], name: str) -> dict[str, NDArray[np.float64]]:
    """Return a curve of the rows that have it in some epochs of every seed."""
    curves = {one.row: one.curves[name] for one in training}
    return {row: each for row, each in curves.items() if np.isfinite(each).all(axis=0).any()}


def _by_magnitude(axes: Axes, curves: Sequence[NDArray[np.float64]]) -> None:
    """Format a logarithmic axis from just below the least positive mean.

    The excess loss of a converged training varies around 0, where its line leaves the panel.
    """
    means = np.concatenate([each.mean(axis=0) for each in curves])
    axes.set_yscale("log", nonpositive="clip")
    if (positive := means[means > 0]).size:
        axes.set_ylim(positive.min() / 2, positive.max() * 2)
