"""Results as a tidy table: `sad_hpc.results.load("results/darkroom")`."""

from pathlib import Path

import numpy as np
import pandas as pd

from sad_hpc.errors import SadError
from sad_hpc.evaluate.result import ModeResult, Result
from sad_hpc.evaluate.result_file import read_result


def load(path: str | Path) -> pd.DataFrame:
    """Every value of an experiment, one row a (method, seed, mode, task, step).

    Columns: task_family, method (or the name of another row), seed, mode
    (offline, online), metric (return, suboptimality, regret), task (number of the test task), step
    (episode, context length or pull, from 1; of bandits' about 20), value, and context_rewards
    (rewarded transitions in the context; missing where they were not counted).

    Args:
        path: a folder results/<experiment>, or one result file.

    Raises:
        SadError: there are no result files, or one is unusable.
    """
    path = Path(path)
    files = [path] if path.is_file() else sorted((path / "evaluations").glob("*.h5"))
    if not files:
        raise SadError(f"{path} holds no evaluations/*.h5; give a folder such as results/darkroom")
    parts = [
        _table(result, mode, part)
        for result in map(read_result, files)
        for mode, part in result.modes.items()
    ]
    table = pd.concat(parts, ignore_index=True)
    names = ["task_family", "method", "mode", "metric"]
    return table.astype(dict.fromkeys(names, "category"))


def _table(result: Result, mode: str, part: ModeResult) -> pd.DataFrame:
    """The (n_tasks, K) values of one mode of one element, a row a value."""
    n_tasks, n_columns = part.values.shape
    counted = part.context_rewards
    missing = pd.array([pd.NA] * part.values.size, dtype="Int32")
    return pd.DataFrame(
        {
            "task_family": result.task_family,
            "method": result.method,
            "seed": result.seed,
            "mode": mode,
            "metric": part.measure.metric,
            "task": np.repeat(np.arange(n_tasks), n_columns),
            "step": np.tile(part.steps, n_tasks),
            "value": part.values.ravel(),
            "context_rewards": missing if counted is None else pd.array(counted.ravel(), "Int32"),
        }
    )
