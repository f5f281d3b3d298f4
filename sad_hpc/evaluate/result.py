"""The result file of one (method, seed): `result.h5`."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from sad_hpc.hdf5 import write_file

FORMAT_VERSION = 1
RESULT = "result.h5"


@dataclass(frozen=True)
class ModeResult:
    """What one mode (offline or online) yields for n tasks; K columns, such as episodes."""

    metric: str
    """return, suboptimality or regret."""
    higher_is_better: bool
    axis: str
    """What the columns are."""
    headline: int
    """The number in the tables is the mean of the last so many columns."""
    values: NDArray[np.float32]
    """(n, K)"""
    references: dict[str, NDArray[np.float32]]
    """Reference policy -> (n, K)."""
    context_rewards: NDArray[np.int32] | None = None
    """(n, K): rewarded transitions in the context, where seeing one makes the difference."""


def write_result(
    path: Path,
    attributes: dict[str, Any],
    tasks: dict[str, NDArray[Any]],
    results: dict[str, ModeResult],
) -> None:
    """Writes `result.h5` in one step.

    Args:
        path: of the file.
        attributes: of its root; `config` is written as JSON.
        tasks: datasets of the group `tasks`.
        results: by mode, offline and online.
    """

    def fill(file: h5py.File) -> None:
        file.attrs["format_version"] = FORMAT_VERSION
        for name, value in attributes.items():
            file.attrs[name] = json.dumps(value, sort_keys=True) if name == "config" else value
        for name, array in tasks.items():
            file[f"tasks/{name}"] = array
        for mode, result in results.items():
            group = file.create_group(mode)
            group.attrs.update(
                metric=result.metric,
                higher_is_better=result.higher_is_better,
                axis=result.axis,
                headline=result.headline,
            )
            group["values"] = result.values
            if result.context_rewards is not None:
                group["context_rewards"] = result.context_rewards
            for reference, values in result.references.items():
                file[f"references/{reference}/{mode}"] = values

    write_file(path, fill)
