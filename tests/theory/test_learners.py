import pytest

from sad_hpc.errors import ConfigError
from sad_hpc.experiment.load import load_experiment
from sad_hpc.theory.learners import exact_learners
from tests.conftest import ROOT

SMALL = [
    "task.size=3", "task.horizon=8", "task.train_goals=7", "data.tasks=4500", "evaluate.tasks=400",
    "data.trust_horizon=3", "evaluate.online_episodes=12",
]  # fmt: skip


def test_learners_of_right_labels_are_optimal_where_the_context_tells_the_goal():
    table = exact_learners(load_experiment(ROOT / "configs/darkroom.yaml", SMALL))
    table = table.set_index("learner")
    assert list(table.index) == ["DIT", "DPT*", "DPT*, lowest", "SAD"]
    right = table.loc[["DPT*", "DPT*, lowest", "SAD"], "reward_seen"]
    assert right.nunique() == 1 and right.iloc[0] > table.loc["DIT", "reward_seen"]
    # A policy that moves along x first needs the goal's column.
    assert table.loc["DPT*", "online"] > table.loc["DPT*, lowest", "online"]
    assert table.loc["SAD", "online"] > table.loc["DIT", "online"]


def test_learners_of_bandits_are_ordered_by_what_their_labels_tell():
    config = ROOT / "configs/paper/gaussian_bandit.yaml"
    table = exact_learners(load_experiment(config, ["task.horizon=40", "data.context_policy=dpt"]))
    table = table.set_index("learner")
    assert list(table.columns) == ["offline", "lengths", "online"]
    for column in ("lengths", "online"):
        assert (table.loc["AD", column] > table.loc["DIT", column]).all()
        assert table.loc["DIT", column] > table.loc["SAD", column]
    with pytest.raises(ConfigError, match="are for bandits and tabular families"):
        exact_learners(load_experiment(ROOT / "configs/miniworld.yaml", []))
