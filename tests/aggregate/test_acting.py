"""The comparison of acting rules as a table and a picture."""

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from sad_hpc.aggregate.acting import draw_acting
from sad_hpc.aggregate.summary import acting_table
from sad_hpc.evaluate.acting import Selection, grid
from sad_hpc.evaluate.result import Result

RULES = grid(sparse_reward=True, vectors=True)


def result(row: str, seed: int, values: NDArray[np.float64] | None) -> Result:
    selection = None
    if values is not None:
        tasks = np.arange(values.shape[1])[:, None]
        selection = Selection.of_values(RULES, values, tasks, higher_is_better=True)
    return Result(Path(), row, seed, "darkroom", "", {}, selection)


def test_the_table_has_every_rule_once_and_names_the_chosen_one(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    scores = {key: generator.random(len(RULES)) for key in [("SAD", 0), ("SAD", 1), ("DPT", 0)]}
    results = [result(*key, np.repeat(each[:, None], 3, 1)) for key, each in scores.items()]
    table = acting_table([*results, result("AD", 0, None)])
    assert len(table) == 3 * len(RULES) and set(table["row"]) == {"SAD", "DPT"}
    assert not table.duplicated(["row", "seed", "temperature", "kind"]).any()
    best = table[table["chosen"]].set_index(["row", "seed"])["score"]
    assert {key: pytest.approx(each.max()) for key, each in scores.items()} == best.to_dict()
    assert (table["error"] >= 0).all()
    cold = table[(table["temperature"] == 0)]
    assert (cold["kind"] == "sampled").all() and len(cold) == 3
    draw_acting(tmp_path / "acting.png", "Rooms", table)
    assert (tmp_path / "acting.png").stat().st_size > 1000
