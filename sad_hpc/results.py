"""Results as tidy tables: `sad_hpc.results.load("results/darkroom")`."""

from pathlib import Path

import numpy as np
import pandas as pd

from sad_hpc.aggregate.results_file import RESULTS, ExperimentResults, read_results
from sad_hpc.aggregate.summary import acting_table
from sad_hpc.errors import UserError
from sad_hpc.evaluate.result import ModeResult, Result


def load(path: str | Path) -> pd.DataFrame:
    """Return every value of an experiment, one line for each (row, seed, mode, task, step).

    Columns: task_family, row (a method, or a method with settings such as SAD+), seed, mode
    (offline, online), metric (return, suboptimality, regret), task (number of the test task), step
    (episode, context length or pull, from 1; about 20 of them for bandits), value, and
    context_rewards (rewarded transitions in the context; missing if they were not counted).

    Args:
        path: a folder such as results/darkroom, or its results.h5.

    Raises:
        UserError: results.h5 is missing or damaged.
    """
    parts = [
        _table(result, mode, part)
        for result in _read(path).results
        for mode, part in result.modes.items()
    ]
    table = pd.concat(parts, ignore_index=True)
    names = ["task_family", "row", "mode", "metric"]
    return table.astype(dict.fromkeys(names, "category"))


def load_acting(path: str | Path) -> pd.DataFrame:
    """Return the comparison of acting rules of an experiment with `evaluate.acting: auto`.

    See `acting_table` for the columns, and `load` for arguments and errors.
    """
    return acting_table(_read(path).results)


def _read(path: str | Path) -> ExperimentResults:
    path = Path(path)
    file = path / RESULTS if path.is_dir() else path
    if not file.exists():
        raise UserError(f"{path} has no {RESULTS}; give a folder such as results/darkroom")
    return read_results(file)


def _table(result: Result, mode: str, part: ModeResult) -> pd.DataFrame:
    """Return the (n_tasks, K) values of one mode of one element, one line for each value."""
    n_tasks, n_columns = part.values.shape
    counted = part.context_rewards
    missing = pd.array([pd.NA] * part.values.size, dtype="Int32")
    return pd.DataFrame(
        {
            "task_family": result.task_family,
            "row": result.row,
            "seed": result.seed,
            "mode": mode,
            "metric": part.measure.metric,
            "task": np.repeat(np.arange(n_tasks), n_columns),
            "step": np.tile(part.steps, n_tasks),
            "value": part.values.ravel(),
            "context_rewards": missing if counted is None else pd.array(counted.ravel(), "Int32"),
        }
    )
