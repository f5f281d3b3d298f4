"""A sweep as one table and one figure: labels and performance against the settings."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.axes import Axes

from sad_hpc.aggregate.canvas import drawing
from sad_hpc.aggregate.paper import family_name
from sad_hpc.aggregate.styles import verbatim
from sad_hpc.aggregate.summary import VIEWS, view_title
from sad_hpc.experiment.experiment import Experiment
from sad_hpc.experiment.rows import symbol

WIDE = 8
"""Values that span such a factor get a logarithmic axis."""


def sweep_table(
    experiment: Experiment[Any], labels: pd.DataFrame, summary: pd.DataFrame
) -> pd.DataFrame:
    """One row a point: method, settings, labels' accuracy and cost, mean and std of each view."""
    numbers = {(row.method, row.mode, row.subset): row for row in summary.itertuples()}
    costs = {row["method"]: row for row in labels.to_dict("records")}
    rows = []
    for name, variant in experiment.rows.items():
        if name in experiment.variants:
            continue
        row: dict[str, Any] = {"method": variant.method, **variant.values}
        row |= {key: value for key, value in costs.get(name, {}).items() if key != "method"}
        for mode, subset in VIEWS:
            if found := numbers.get((name, mode, subset)):
                column = _column(mode, subset)
                row |= {column: found.mean, f"{column}_std": found.std, "seeds": found.n_seeds}
        rows.append(row)
    table = pd.DataFrame(rows)
    for key in experiment.sweep:  # as they are, also beside null
        table[key] = pd.Series([row[key] for row in rows if key in row], dtype=object)
    return table


def draw_sweep(
    path: Path, family: str, table: pd.DataFrame, keys: Sequence[str], summary: pd.DataFrame
) -> None:
    """sweep.png: a panel for label accuracy and each view of a `sweep_table`, against the first of
    the sweep's keys; `summary` has the names of metrics."""
    along, *others = keys
    panels = _panels(table, summary)
    with drawing(path, (4.6 * len(panels), 4.2)) as figure:
        title = f"{family_name(family)}: sweep over {', '.join(map(symbol, keys))}"
        figure.suptitle(verbatim(title))
        for number, (column, label) in enumerate(panels.items()):
            axes = figure.add_subplot(1, len(panels), number + 1)
            _draw_panel(axes, table, column, along, others)
            axes.set_ylabel(label)
        handles, names = figure.axes[0].get_legend_handles_labels()
        figure.legend(
            handles, names, loc="outside lower center", ncols=4, frameon=False, fontsize=9
        )


def _column(mode: str, subset: str) -> str:
    return mode if subset == "all" else f"{mode}_{subset}"


def _panels(table: pd.DataFrame, summary: pd.DataFrame) -> Mapping[str, str]:
    """Titles of vertical axes by column; labels only where they differ between points."""
    panels = {}
    if "label_accuracy" in table and table["label_accuracy"].nunique() > 1:
        panels["label_accuracy"] = "label accuracy"
    for mode, subset in VIEWS:
        if (column := _column(mode, subset)) in table:
            panels[column] = view_title(summary, mode, subset)
    return panels


def _draw_panel(
    axes: Axes, table: pd.DataFrame, column: str, along: str, others: Sequence[str]
) -> None:
    """One line for each method and combination of the other settings."""
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
    if places:  # what was measured, not what lies between
        axes.set_xticks(places, [f"{value:g}" for value in places])
        axes.minorticks_off()
