"""Reader of `metrics.jsonl`: loss and label accuracy on held-out training tasks, epoch by epoch."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sad_hpc.errors import DivergedError

METRICS = "metrics.jsonl"
CURVES = ("holdout_loss", "holdout_accuracy", "excess_loss", "told_accuracy", "step")
"""Keys of a line that are read; a line without one of the latter has NaN."""
Epochs = dict[int, tuple[float, ...]]
"""CURVES by epoch."""


@dataclass(frozen=True)
class Training:
    """One row's training curves."""

    row: str
    seeds: tuple[int, ...]
    epochs: NDArray[np.int64]
    """(E,): the epochs that every seed has, from 1."""
    holdout_loss: NDArray[np.float64]
    """(seeds, E), nats."""
    holdout_accuracy: NDArray[np.float64]
    """(seeds, E), fraction of labels."""
    excess_loss: NDArray[np.float64]
    """(seeds, E), nats: the hold-out loss less the Bayes-optimal learner's; NaN where that is not
    known."""
    told_accuracy: NDArray[np.float64]
    """(seeds, E), fraction of the labels whose context leaves a single task possible; NaN where it
    was not measured."""
    steps: NDArray[np.float64]
    """(E,): optimizer steps until the end of each epoch; NaN where they were not written."""


def training_curves(seeds: Sequence[tuple[str, int, Epochs]]) -> list[Training]:
    """Return the training curves of each row.

    Args:
        seeds: row, seed and curves of each trained model; models without curves are left out.
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
    # Seeds differ in nothing that decides the steps of an epoch.
    return Training(row, tuple(found), np.array(common), loss, accuracy, excess, told, steps[0])


def read_finite_epochs(folder: Path) -> Epochs:
    """Return the curves in a model's folder; see `read_epochs`.

    Raises:
        DivergedError: the training has diverged.
    """
    epochs = read_epochs(folder / METRICS)
    if not all(math.isfinite(loss) for loss, *_ in epochs.values()):
        raise DivergedError(
            f"{folder / METRICS} holds losses that are not finite: the training has diverged. "
            f"Remove {folder} and its evaluation, {DivergedError.REMEDY}"
        )
    return epochs


def read_epochs(path: Path) -> Epochs:
    """What a file says; empty if the file is missing.

    Lines of another kind are passed over, and so is one that a stopped job left unfinished.  An
    epoch that was repeated after a resume counts as it was last.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError:
        return {}
    epochs = {}
    for line in lines:
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if isinstance(record, dict) and "holdout_loss" in record and "epoch" in record:
            epochs[int(record["epoch"])] = tuple(map(float, (record.get(k, "nan") for k in CURVES)))
    return epochs
