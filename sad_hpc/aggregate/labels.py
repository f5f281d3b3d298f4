"""Label accuracy, and the transitions of contexts and labels, for each row."""

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd

from sad_hpc.aggregate.results_file import RowFacts
from sad_hpc.aggregate.tables import Table
from sad_hpc.dataset.schema import Manifest
from sad_hpc.dataset.verify import label_accuracy, origin_of
from sad_hpc.errors import DatasetError
from sad_hpc.experiment.methods import METHODS
from sad_hpc.storage.run import Run

COLUMNS = (
    "row",
    "label_accuracy",
    "context_transitions",
    "label_transitions",
)


def label_table(run: Run) -> pd.DataFrame:
    """Return COLUMNS of each row whose dataset can be read.

    Transitions are means over training tasks; those of labels count all labels of a task.  A label
    is correct if it is an optimal action in its query state.  AD's and DIT's labels are actions of
    the context itself, so they need no further transitions and have no accuracy here.
    """
    datasets: dict[str, tuple[Manifest, dict[str, float]]] = {}
    rows = []
    for row in run.experiment.by_row:
        own, method = run.of_row(row)
        trained = Run(own.experiment.source, run.runs)
        try:
            if (name := trained.data().path.name) not in datasets:
                datasets[name] = _read(trained)
        except DatasetError:
            continue
        rows.append(_row(row, method, *datasets[name]))
    return pd.DataFrame(rows, columns=list(COLUMNS))


def label_notes(rows: Iterable[RowFacts]) -> list[str]:
    """Return a sentence that names the rows whose dataset cannot be read; empty without any."""
    unread = [row.row for row in rows if math.isnan(row.context_transitions)]
    if not unread:
        return []
    return [
        f"No label accuracy of {', '.join(unread)}: the dataset is missing or damaged "
        "(`sad-hpc verify RUN` names the file)."
    ]


def label_cells(rows: Iterable[RowFacts]) -> Table:
    """Return the table of label accuracies and transitions, without rows of unread datasets."""
    header = ["row", "label accuracy", "transitions of a context", "of its labels"]
    lines = [
        [
            row.row,
            "" if math.isnan(row.label_accuracy) else f"{row.label_accuracy:.1%}",
            f"{row.context_transitions:,.0f}",
            f"{row.label_transitions:,.0f}",
        ]
        for row in rows
        if not math.isnan(row.context_transitions)
    ]
    return header, lines


def _read(run: Run) -> tuple[Manifest, dict[str, float]]:
    folder = run.data().path / "train"
    manifest = Manifest.load(folder)
    return manifest, label_accuracy(folder, manifest, *origin_of(manifest))


def _row(row: str, method: str, manifest: Manifest, accuracy: dict[str, float]) -> dict[str, Any]:
    labels = (METHODS[method].labels or "").removeprefix("labels/")
    # Bandits have only one kind of context.
    context = manifest.steps[METHODS[method].context] or manifest.steps["transitions"]
    return {
        "row": row,
        "label_accuracy": accuracy.get(labels, np.nan),
        "context_transitions": context / manifest.n_tasks,
        "label_transitions": manifest.steps.get(f"labels_{labels}", 0) / manifest.n_tasks,
    }
