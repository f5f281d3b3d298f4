"""Table and figure of a sweep: label accuracy and performance against the settings."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.axes import Axes

from sad_hpc.aggregate.canvas import LEGEND_INCHES, add_legend, drawing, verbatim
from sad_hpc.aggregate.formats import NOT_COMPUTED, Table
from sad_hpc.aggregate.results_file import RowFacts
from sad_hpc.aggregate.summary import VIEWS, view_title
from sad_hpc.experiment.rows import point_name, symbol

LABEL_FACTS = ("label_accuracy", "context_transitions", "label_transitions")
WIDE = 8
"""Values that span at least this factor get a logarithmic axis."""


def sweep_table(
    rows: Iterable[RowFacts], keys: Sequence[str], summary: pd.DataFrame
) -> pd.DataFrame:
    """Return one line for each point: method, settings, label accuracy, mean and std of each view.

    Args:
        rows: the experiment's rows; rows outside of the sweep are skipped.
        keys: dotted keys of the sweep.
        summary: the experiment's summary.
    """
    numbers = {(line.row, line.mode, line.subset): line for line in summary.itertuples()}
    points = []
    for row in rows:
        if set(row.settings) != set(keys) or row.row != point_name(row.method, row.settings):
            continue
        point: dict[str, Any] = {"method": row.method, **row.settings}
        point |= {name: getattr(row, name) for name in LABEL_FACTS}
        for mode, subset in VIEWS:
            if found := numbers.get((row.row, mode, subset)):
                column = _column(mode, subset)
                point |= {column: found.mean, f"{column}_std": found.std, "seeds": found.n_seeds}
        points.append(point)
    table = pd.DataFrame(points)
    for key in keys if points else ():  # as objects, since null would turn integers into floats
        table[key] = pd.Series([point[key] for point in points], dtype=object)
    return table


def sweep_cells(table: pd.DataFrame, keys: Sequence[str], summary: pd.DataFrame) -> Table:
    """Return a sweep's table as text."""
    panels = _panels(table, summary)
    header = ["method", *map(symbol, keys), *panels.values()]
    lines = []
    for point in table.to_dict("records"):
        numbers = []
        for column in panels:
            value, std = point.get(column), point.get(f"{column}_std")
            text = NOT_COMPUTED if value is None or pd.isna(value) else f"{value:.4g}"
            numbers.append(f"{text} ± {std:.2g}" if std else text)
        lines.append([point["method"], *(str(point[key]) for key in keys), *numbers])
    return header, lines


def draw_sweep(
    path: Path, title: str, table: pd.DataFrame, keys: Sequence[str], summary: pd.DataFrame
) -> None:
    """Draw sweep.png: a panel for label accuracy and each view, against the first key.

    Args:
        path: the picture to write.
        title: the environment's title.
        table: the result of `sweep_table`.
        keys: dotted keys of the sweep.
        summary: the experiment's summary, for the names of metrics.
    """
    along, *others = keys
    panels = _panels(table, summary)
    with drawing(path, (4.2 * len(panels) + LEGEND_INCHES, 4.2)) as figure:
        figure.suptitle(verbatim(f"{title}: sweep over {', '.join(map(symbol, keys))}"))
        for number, (column, label) in enumerate(panels.items()):
            axes = figure.add_subplot(1, len(panels), number + 1)
            _draw_panel(axes, table, column, along, others)
            axes.set_ylabel(label)
        add_legend(figure)


def _column(mode: str, subset: str) -> str:
    return mode if subset == "all" else f"{mode}_{subset}"


def _panels(table: pd.DataFrame, summary: pd.DataFrame) -> Mapping[str, str]:
    """Return titles of vertical axes by column; label accuracy only if it varies."""
    panels = {}
    if table["label_accuracy"].nunique() > 1:
        panels["label_accuracy"] = "label accuracy"
    for mode, subset in VIEWS:
        if (column := _column(mode, subset)) in table:
            panels[column] = view_title(summary, mode, subset)
    return panels


def _draw_panel(
    axes: Axes, table: pd.DataFrame, column: str, along: str, others: Sequence[str]
) -> None:
    """Draw one line for each method and combination of the other settings."""
    numeric = all(isinstance(value, int | float) for value in table[along])
    for names, points in table.groupby(["method", *others], sort=False, dropna=False):
        method, *values = names
        settings = [f"{symbol(key)} = {each}" for key, each in zip(others, values, strict=True)]
        axes.errorbar(
            [float(value) if numeric else str(value) for value in points[along]],
            points[column],
            yerr=points.get(f"{column}_std", None),
            marker="o",
            ms=4,
            capsize=3,
            label=verbatim(", ".join([method, *settings])),
        )
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_xlabel(symbol(along))
    places = sorted(set(table[along].astype(float))) if numeric else []
    if places and 0 < places[0] * WIDE <= places[-1]:
        axes.set_xscale("log")
    if places:  # ticks only at measured values
        axes.set_xticks(places, [f"{value:g}" for value in places])
        axes.minorticks_off()
