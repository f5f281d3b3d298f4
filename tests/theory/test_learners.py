import pytest

from sad_hpc.errors import ConfigError
from sad_hpc.experiment.load import load_experiment, parse_experiment
from sad_hpc.theory.learners import exact_learners
from tests.conftest import ROOT

SMALL = [
    "task.size=3", "task.horizon=8", "task.train_goals=7", "data.tasks=4500", "evaluate.tasks=400",
    "data.trust_horizon=3", "evaluate.online_episodes=12",
    "rows=[AD, DPT, DIT, DPT*, {name: 'DPT*, x first', method: DPT*, set: {data.oracle_tie_break: "
    "lowest}}, SAD, {name: 'SAD, N = 1', method: SAD, set: {data.trust_horizon: 1}}, {name: "
    "'SAD, two queries', method: SAD, set: {data.queries_per_task: 2}}]",
]  # fmt: skip


def test_learners_of_right_labels_are_optimal_where_the_context_tells_the_goal():
    table = exact_learners(load_experiment(ROOT / "configs/darkroom.yaml", SMALL))
    table = table.set_index("row")
    rows = ["DIT", "DPT*", "DPT*, x first", "SAD", "SAD, N = 1", "SAD, two queries"]
    assert list(table.index) == rows
    right = table.loc[["DPT*", "DPT*, x first", "SAD"], "reward_seen"]
    assert right.nunique() == 1 and right.iloc[0] > table.loc["DIT", "reward_seen"]
    # A policy that moves along x first needs the goal's column.
    assert table.loc["DPT*", "online"] > table.loc["DPT*, x first", "online"]
    assert table.loc["SAD", "online"] > table.loc["DIT", "online"]
    assert (table.loc["SAD, two queries"] == table.loc["SAD"]).all()
    assert (table.loc["SAD, N = 1", "online"] != table.loc["SAD", "online"]).all()


def test_learners_of_bandits_are_ordered_by_what_their_labels_tell():
    config = ROOT / "configs/paper/gaussian_bandit.yaml"
    table = exact_learners(load_experiment(config, ["task.horizon=40"])).set_index("row")
    assert list(table.columns) == ["offline", "lengths", "online"]
    for column in ("lengths", "online"):
        assert (table.loc["AD", column] > table.loc["DIT", column]).all()
        assert table.loc["DIT", column] > table.loc["SAD", column]
    uniform = table.loc["SAD, uniform contexts"]
    assert uniform["lengths"] < table.loc["SAD", "lengths"]  # more of the arms are tried
    assert uniform["online"] == table.loc["SAD", "online"]
    rows = ["SAD", {"name": "SAD, N = 1", "method": "SAD", "set": {"data.trust_horizon": 1}}]
    trained = load_experiment(config, ["task.horizon=40"]).model_dump(mode="json") | {"rows": rows}
    again = {key: trained[key] for key in ("task", "data", "evaluate")} | {"name": "again"}
    own = parse_experiment(again | {"pretrained": trained}, "x")
    table = exact_learners(own).set_index("row")
    assert table.loc["SAD", "online"] < table.loc["SAD, N = 1", "online"]
    with pytest.raises(ConfigError, match="are for bandits and tabular families"):
        exact_learners(load_experiment(ROOT / "configs/miniworld.yaml", []))
