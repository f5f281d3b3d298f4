"""The table of rules for N and N_ep, and the overrides of the chosen rule."""

from pathlib import Path

import pandas as pd
import pytest

from sad_hpc.cli import main
from sad_hpc.experiment.load import load_experiment
from tests.conftest import ROOT


@pytest.mark.parametrize(("config", "asked"), [("tiny", 0.7), ("tiny_gaussian", 0.999)])
def test_the_overrides_of_the_cheapest_rule_that_is_enough_are_printed(
    config: str, asked: float, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    path = ROOT / f"tests/configs/{config}.yaml"
    given = ["--agreement", str(asked), "--results", str(tmp_path)]
    assert main(["theory", "horizon", str(path), *given]) == 0
    said = capsys.readouterr().out
    table = pd.read_csv(tmp_path / f"theory/horizon_{config}.csv")
    (chosen,) = table[table["chosen"]].itertuples()
    data = load_experiment(path, said.splitlines()[-1].split()).data
    assert (data.trust_horizon, data.episodes_per_action) == (chosen.N, chosen.N_ep)
    enough = table[table["consensus"] >= asked]
    assert ("no rule reaches" in said) == enough.empty == (asked == 0.999)
    best = table["consensus"].max() if enough.empty else enough["transitions"].min()
    assert best == (chosen.consensus if enough.empty else chosen.transitions)
    assert f"took {table['trial_transitions'].sum():,.0f} transitions" in said
    assert (table["consensus"] <= table["labelled"]).all()
    assert (table["optimal"] <= table["labelled"]).all()
