"""The summary of an experiment: one row a policy, mode and subset, and the curves behind it."""

import json
from collections.abc import Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, Literal

import h5py
import numpy as np
import pandas as pd
from pydantic import BaseModel

from sad_hpc.aggregate.csv_table import read_records
from sad_hpc.aggregate.paper import family_name
from sad_hpc.aggregate.series import Series
from sad_hpc.aggregate.statistics import per_seed
from sad_hpc.aggregate.tables import NOT_COMPUTED
from sad_hpc.aggregate.training import Training
from sad_hpc.experiment.rows import slug
from sad_hpc.storage.hdf5 import write_file

FORMAT_VERSION = 2
VIEWS = (("offline", "all"), ("offline", "reward_seen"), ("online", "all"))
"""(mode, subset): the columns of a headline table."""
DECIMALS = {"suboptimality": 4}
"""By metric; two otherwise."""


class Row(BaseModel):
    """One policy, mode and subset."""

    task_family: str
    method: str
    mode: Literal["offline", "online"]
    metric: Literal["return", "suboptimality", "regret"]
    subset: Literal["all", "reward_seen"]
    n_seeds: int
    mean: float
    std: float
    iqm: float
    ci_low: float
    ci_high: float
    ideal: float


class SeedRow(BaseModel):
    """The headline number of one seed in a row of the summary."""

    task_family: str
    method: str
    mode: Literal["offline", "online"]
    subset: Literal["all", "reward_seen"]
    seed: int
    value: float


COLUMNS = tuple(Row.model_fields)
SEED_COLUMNS = tuple(SeedRow.model_fields)


def summary_table(family: str, series: Sequence[Series]) -> pd.DataFrame:
    """One row a series, with COLUMNS; a reference policy stands in the column `method`."""
    rows = [
        {
            "task_family": family,
            "method": one.policy,
            "mode": one.mode,
            "metric": one.measure.metric,
            "subset": one.subset,
            **asdict(one.statistics),
            "ideal": one.ideal,
        }
        for one in series
    ]
    return pd.DataFrame(rows, columns=list(COLUMNS))


def seed_table(family: str, series: Sequence[Series]) -> pd.DataFrame:
    """SEED_COLUMNS of every seed behind a summary; NaN where it has no entry in the subset."""
    rows = [
        (family, one.policy, one.mode, one.subset, seed, value)
        for one in series
        for seed, value in zip(one.seeds, per_seed(one.headlines), strict=True)
    ]
    return pd.DataFrame(rows, columns=list(SEED_COLUMNS))


def read_summary(content: bytes) -> pd.DataFrame:
    """The table in the bytes of a `summary.csv`, which may be a stranger's.

    Raises:
        ValueError: it is something else.
    """
    table = _read_rows(content, Row, ["method", "mode", "subset"])
    if pick(table, "offline", "all").empty:
        raise ValueError("no row is offline and of all contexts")
    return table


def read_seeds(content: bytes) -> pd.DataFrame:
    """The table in the bytes of a `seeds.csv`, which may be a stranger's.

    Raises:
        ValueError: it is something else.
    """
    return _read_rows(content, SeedRow, ["method", "mode", "subset", "seed"])


def _read_rows(content: bytes, row: type[BaseModel], keys: list[str]) -> pd.DataFrame:
    """Rows of one kind from the bytes of a CSV file, no two alike in their keys."""
    rows = [row.model_validate(record).model_dump() for record in read_records(content)]
    table = pd.DataFrame(rows, columns=list(row.model_fields))
    if table.duplicated(keys).any():
        raise ValueError(f"two rows are of the same {', '.join(keys[:-1])} and {keys[-1]}")
    return table


def headline_cells(summary: pd.DataFrame) -> tuple[list[str], list[list[str]]]:
    """Header and rows of the headline table: mean ± std over seeds of every policy.

    The last column counts the seeds, column by column where the columns differ.
    """
    views = [view for view in VIEWS if len(pick(summary, *view))]
    header = ["method", *(view_title(summary, *view) for view in views), "seeds"]
    rows = []
    for method in summary["method"].unique():
        own = [pick(summary[summary["method"] == method], *view) for view in views]
        counts = [str(int(row["n_seeds"].iloc[0])) if len(row) else NOT_COMPUTED for row in own]
        seeds = counts[0] if len(set(counts)) == 1 else ", ".join(counts)
        shown = [mean_and_std(row.iloc[0]) if len(row) else NOT_COMPUTED for row in own]
        rows.append([method, *shown, seeds])
    return header, rows


def headline_title(summary: pd.DataFrame) -> str:
    """What the headline table is of."""
    families = ", ".join(family_name(family) for family in summary["task_family"].unique())
    return f"{families}: mean ± standard deviation over training seeds"


def pick(table: pd.DataFrame, mode: str, subset: str) -> pd.DataFrame:
    """The rows of one mode and subset."""
    return table[(table["mode"] == mode) & (table["subset"] == subset)]


def view_title(summary: pd.DataFrame, mode: str, subset: str) -> str:
    """Such as `offline return, reward seen`."""
    metric = pick(summary, mode, subset)["metric"].iloc[0]
    return f"{mode} {metric}" + (", reward seen" if subset == "reward_seen" else "")


def mean_and_std(row: pd.Series) -> str:
    """`26.77 ± 0.96` of a summary's row; `26.77` of one seed."""
    mean = number(row["metric"], row["mean"])
    return f"{mean} ± {number(row['metric'], row['std'])}" if row["n_seeds"] > 1 else mean


def number(metric: str, value: float) -> str:
    """With as many decimals as the metric's tables have."""
    return "NaN" if np.isnan(value) else f"{value:.{DECIMALS.get(metric, 2)}f}"


def write_curves(
    path: Path, series: Sequence[Series], training: Sequence[Training], attributes: dict[str, Any]
) -> None:
    """Writes `summary.h5`: the raw per-seed curves behind tables and figures.

        <mode>/steps                             (K), attrs of <mode>: metric, axis, headline
        <mode>/<subset>/methods/<slug>           (seeds, K) float64, attrs name, seeds
        <mode>/<subset>/references/<name>        the same
        training/<slug>/{epochs,steps}           (E,)
        training/<slug>/{holdout_loss,holdout_accuracy,excess_loss,told_accuracy}    (seeds, E)

    `attributes` become root attributes, as JSON where they are no text.
    """

    def fill(file: h5py.File) -> None:
        file.attrs["format_version"] = FORMAT_VERSION
        for name, value in attributes.items():
            file.attrs[name] = value if isinstance(value, str) else json.dumps(value)
        for one in series:
            _write_series(file.require_group(one.mode), one)
        for curves in training:
            _write_training(file.create_group(f"training/{slug(curves.method)}"), curves)

    write_file(path, fill)


def _write_series(group: Any, series: Series) -> None:
    group.attrs.update(asdict(series.measure))
    if "steps" not in group:
        group["steps"] = series.steps
    kind = "references" if series.is_reference else "methods"
    name = series.policy if series.is_reference else slug(series.policy)
    place = f"{series.subset}/{kind}/{name}"
    dataset = group.create_dataset(place, data=series.curves, compression="gzip", shuffle=True)
    dataset.attrs["name"] = series.policy
    dataset.attrs["seeds"] = series.seeds


def _write_training(group: Any, training: Training) -> None:
    group.attrs["name"] = training.method
    group.attrs["seeds"] = training.seeds
    for field in fields(training):
        if isinstance(value := getattr(training, field.name), np.ndarray):
            group[field.name] = value
