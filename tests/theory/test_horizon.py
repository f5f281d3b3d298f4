"""The table of what `trust_horizon: auto` tries."""

from pathlib import Path

import pandas as pd
import pytest

from sad_hpc.cli import main
from sad_hpc.experiment.load import load_experiment
from tests.conftest import TINY


def test_the_table_has_the_rule_that_auto_takes(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    given = ["--trustworthiness", "0.7", "--results", str(tmp_path)]
    assert main(["theory", "horizon", str(TINY), *given]) == 0
    said = capsys.readouterr().out
    assert said.count("chosen") == 1
    table = pd.read_csv(tmp_path / "theory/horizon_tiny.csv")
    chosen = table[table["chosen"]]
    auto = ["data.trust_horizon=auto", "data.trustworthiness=0.7"]
    data = load_experiment(TINY, auto).data
    rule = (data.trust_horizon, data.episodes_per_action)
    assert data.chosen["transitions"] == pytest.approx(table["trial_transitions"].sum())
    assert f"took {data.chosen['transitions']:,.0f} transitions" in said
    assert [tuple(row) for row in chosen[["N", "N_ep"]].to_numpy()] == [rule]
    enough = table[table["consensus"] >= 0.7]
    assert chosen["transitions"].item() == enough["transitions"].min()
    assert (table["consensus"] <= table["labelled"]).all()
    assert (table["optimal"] <= table["labelled"]).all()
