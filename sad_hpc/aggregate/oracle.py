"""SAD against the oracle that was trained in the same way, DPT*: with an interval over seeds."""

import math
from collections.abc import Sequence

import pandas as pd

from sad_hpc.aggregate.statistics import Ratio, ratio
from sad_hpc.aggregate.summary import SEED_COLUMNS, pick
from sad_hpc.evaluate.result import HIGHER_IS_BETTER
from sad_hpc.experiment.rows import method_of

ORACLE_COLUMNS = ("oracle", "over_oracle", "over_oracle_low", "over_oracle_high", "paired")


def oracle_of(row: str) -> str | None:
    """The row of DPT* that differs from a row of SAD in the labels alone; of others None."""
    return "DPT*" + row.removeprefix("SAD") if method_of(row) == "SAD" else None


def add_oracles(table: pd.DataFrame, seeds: Sequence[pd.DataFrame], mode: str) -> None:
    """Adds ORACLE_COLUMNS to a table by (family, row): the percentage by which SAD is better than
    its oracle, as the paper defines it, with its 95 % interval; NaN where one of them is not there.

    Args:
        table: has the columns `mean` and `metric`.
        seeds: `seed_table` of all experiments.
        mode: offline or online.
    """
    parts = [pick(each, mode, "all").dropna() for each in seeds]
    values = pd.concat(parts) if parts else pd.DataFrame(columns=list(SEED_COLUMNS))
    by_row = {
        place: dict(zip(group["seed"], group["value"], strict=True))
        for place, group in values.groupby(["task_family", "method"])
    }
    found: list[tuple[str | None, float, float, float, bool | None]] = []
    for (family, row), metric in table["metric"].items():
        oracle = oracle_of(row)
        if (family, row) in by_row and (family, oracle) in by_row:
            sides = by_row[family, row], by_row[family, oracle]
            each = ratio(*(sides if HIGHER_IS_BETTER[metric] else reversed(sides)))
            found.append((oracle, *_percent(each), each.paired))
        else:
            found.append((None, math.nan, math.nan, math.nan, None))
    for name, column in zip(ORACLE_COLUMNS, zip(*found, strict=True), strict=True):
        table[name] = list(column)


def _percent(each: Ratio) -> tuple[float, float, float]:
    mean, low, high = (100 * (value - 1) for value in (each.mean, each.low, each.high))
    return mean, low, high
