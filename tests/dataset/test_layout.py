"""Columns of a dataset: every family follows its layout, and other columns are refused."""

from typing import Any

import numpy as np
import pytest

from sad_hpc.dataset.layout import Column, faults, layout
from sad_hpc.distill import make_block
from sad_hpc.experiment.load import parse_experiment
from sad_hpc.tasks.base import make_family
from tests.dataset.test_interchange import TASKS


@pytest.mark.parametrize("name", sorted(TASKS))
def test_what_kernels_make_follows_the_layout(name: str) -> None:
    config: dict[str, Any] = {"name": "x", "task": TASKS[name], "rows": ["SAD"]}
    config["data"] = {"tasks": 20, "block_tasks": 4, "trust_horizon": 4, "return_threshold": None}
    config["pretrain"] = {"epochs": 1, "holdout_tasks": 4, "batch_size": 4}
    config["evaluate"] = {"tasks": 2}
    experiment = parse_experiment(config, "test")
    family = make_family(experiment.task)
    arrays = make_block(family, experiment.data, "train", 0).arrays
    columns = layout(family, experiment.data)
    assert columns.keys() <= arrays.keys()
    assert faults(arrays, len(arrays["tasks/index"]), columns) == []


@pytest.mark.parametrize(
    ("array", "words"),
    [
        (np.zeros((3, 2), np.uint8), None),
        (np.zeros((3, 2), np.int64), None),
        (np.zeros((2, 2), np.uint8), r"shape (2, 2) instead of (3, 2)"),
        (np.zeros((3,), np.uint8), r"shape (3,) instead of (3, 2)"),
        (np.zeros((3, 2)), "float64 numbers instead of integers"),
        (np.full((3, 2), 4), "outside of 0 to 3"),
        (np.full((3, 2), -1), "outside of 0 to 3"),
    ],
)
def test_a_fault_is_named(array: np.ndarray, words: str | None) -> None:
    fault = Column((2,), whole=True, low=0, high=3).fault(array, 3)
    assert fault is None if words is None else fault is not None and words in fault
    assert Column((None,)).fault(np.full((3, 9), np.nan), 3) == "holds numbers that are not finite"
