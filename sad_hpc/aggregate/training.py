"""Reader of `metrics.jsonl`: loss and label accuracy on held-out training tasks, epoch by epoch."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from sad_hpc.errors import DivergedError
from sad_hpc.storage import plain_json
from sad_hpc.storage.files import read_whole, typed
from sad_hpc.storage.stage_folder import METRICS

CURVES = ("holdout_loss", "holdout_accuracy", "excess_loss", "told_accuracy", "step")
"""Keys of a line that are read; missing ones, except the first, are NaN."""
Epochs = dict[int, tuple[float, ...]]
"""Values of CURVES by epoch."""


@dataclass(frozen=True)
class _Line:
    """A line of the file: CURVES of one epoch."""

    epoch: Annotated[int, Field(ge=0, lt=2**31)]
    holdout_loss: float
    holdout_accuracy: float = math.nan
    excess_loss: float = math.nan
    told_accuracy: float = math.nan
    step: float = math.nan


@dataclass(frozen=True)
class Training:
    """One row's training curves."""

    row: str
    seeds: tuple[int, ...]
    epochs: NDArray[np.int64]
    """(E,): the epochs that all seeds have, from 1."""
    holdout_loss: NDArray[np.float64]
    """(seeds, E), nats."""
    holdout_accuracy: NDArray[np.float64]
    """(seeds, E), fraction of labels."""
    excess_loss: NDArray[np.float64]
    """(seeds, E), nats: the held-out loss minus that of the Bayes-optimal learner; NaN if that is
    unknown."""
    told_accuracy: NDArray[np.float64]
    """(seeds, E): label accuracy over contexts that identify the task; NaN if it was not
    measured."""
    steps: NDArray[np.float64]
    """(E,): optimizer steps until the end of each epoch; NaN if they were not recorded."""


def training_curves(seeds: Sequence[tuple[str, int, Epochs]]) -> list[Training]:
    """Return the training curves of each row.

    Args:
        seeds: row, seed and curves of each trained model; models without curves are skipped.
    """
    found: dict[str, dict[int, Epochs]] = {}
    for row, seed, epochs in seeds:
        if epochs:
            found.setdefault(row, {})[seed] = epochs
    return [_curves(row, epochs) for row, epochs in found.items()]


def _curves(row: str, found: dict[int, Epochs]) -> Training:
    common = sorted(set.intersection(*(set(epochs) for epochs in found.values())))
    curves = np.array([[epochs[epoch] for epoch in common] for epochs in found.values()])
    curves = curves.reshape(len(found), len(common), len(CURVES))
    loss, accuracy, excess, told, steps = np.moveaxis(curves, -1, 0)
    # The steps of an epoch do not depend on the seed.
    return Training(row, tuple(found), np.array(common), loss, accuracy, excess, told, steps[0])


def read_finite_epochs(folder: Path) -> Epochs:
    """Return the curves in a model's folder; see `read_epochs`.

    Raises:
        DivergedError: the training has diverged.
    """
    epochs = read_epochs(folder / METRICS)
    if not all(math.isfinite(loss) for loss, *_ in epochs.values()):
        raise DivergedError(
            f"{folder / METRICS} has losses that are not finite: the training has diverged. "
            f"Remove {folder} and its evaluation, {DivergedError.REMEDY}"
        )
    return epochs


def read_epochs(path: Path) -> Epochs:
    """Return the curves in a metrics file; empty if the file is missing.

    Invalid lines are skipped, such as one that a stopped job left unfinished.  If an epoch was
    repeated after a resume, its last line counts.
    """
    try:
        lines = read_whole(path).decode(errors="replace").splitlines()
    except OSError:
        return {}
    epochs = {}
    for line in lines:
        try:
            record = typed(_Line, plain_json.parse(line))
        except ValueError:
            continue
        if record is not None:
            epochs[record.epoch] = tuple(getattr(record, name) for name in CURVES)
    return epochs
