"""The stages as Python functions: a run from a config to a table, and again."""

from pathlib import Path

import pytest

from sad_hpc import api
from sad_hpc.errors import UserError
from tests.conftest import TINY

SETTINGS = ["rows=[DPT, SAD]", "seeds=[0]", "evaluate.tasks=4"]


def test_a_run_goes_from_its_config_to_a_table(tmp_path: Path):
    run = api.load_run(TINY, *SETTINGS, runs=tmp_path / "runs")
    api.collect(run)
    api.train(run, [("SAD", 0)])
    told: list[UserError] = []
    api.evaluate(run, failed=told.append)
    assert len(told) == 1 and "DPT" in str(told[0]), "the other row has a result"
    with pytest.raises(UserError, match="DPT"):
        api.evaluate(run)
    with pytest.raises(UserError, match="no result of DPT seed 0"):
        api.table(run, tmp_path / "results")
    api.train(run)
    api.evaluate(run)
    table = api.table(run, tmp_path / "results")
    assert set(table["row"]) == {"DPT", "SAD"}
    made = [path.stat().st_mtime_ns for path in run.path.rglob("*.pt")]
    api.train(run)
    assert made == [path.stat().st_mtime_ns for path in run.path.rglob("*.pt")], "complete"
