"""Curves of label accuracy against N, and steps to a goal."""

from pathlib import Path

import numpy as np
import pytest

from sad_hpc.cli import main
from sad_hpc.experiment.load import load_experiment, parse_experiment
from sad_hpc.tasks.base import make_family
from sad_hpc.theory import labels
from sad_hpc.theory.labels import label_curves, steps_to_go
from tests.conftest import ROOT, TINY


def test_steps_are_those_of_a_walk_around_no_corner():
    room = make_family(load_experiment(ROOT / "configs/darkroom.yaml").task)
    for goal in ([6, 6], [3, 3], [0, 5]):
        expected = np.abs(room.coordinates.astype(int) - goal).sum(axis=1)
        assert steps_to_go(room, np.array(goal, np.int16)) == pytest.approx(expected)


def test_a_horizon_of_one_labels_the_goal_and_its_neighbours_and_is_never_wrong(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(labels, "QUERY_STATES", 4000)
    curves = label_curves(load_experiment(TINY))
    family = make_family(load_experiment(TINY).task)
    paid = family.mdps(family.distinct_tasks("train")).rewards.max(axis=2)
    shortest = curves[curves["N"] == 1]
    assert (shortest["right"] == 1).all()
    assert shortest["labelled"].to_numpy() == pytest.approx(np.full(5, paid.mean()), abs=0.02)
    assert shortest["transitions"].tolist() == [5, 80, 1280, 80, 1280]
    longest = curves[curves["N"] == family.config.horizon].set_index(["score", "N_ep"])
    means = longest.loc["mean"]
    assert means["right"].is_monotonic_increasing and means["labelled"][256] > 0.99
    assert longest["right"]["fastest", 256] == 1
    assert longest["transitions"]["fastest", 256] < 0.7 * longest["transitions"]["mean", 256]


def test_pulls_of_a_bandit_make_labels_better_and_dearer():
    curves = label_curves(load_experiment(ROOT / "tests/configs/tiny_gaussian.yaml"))
    assert (curves["labelled"] == 1).all()
    for name in ("right", "consensus", "transitions"):
        assert curves[name].diff().dropna().gt(-0.01).all()
    assert (curves["consensus"] < curves["right"]).all()


def test_dense_rewards_have_no_fastest_rollout(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(labels, "QUERY_STATES", 100)
    monkeypatch.setattr(labels, "EPISODES", (1, 2))
    task = {"family": "gymnasium_table", "env": "CliffWalking-v1", "states": [4, 12], "horizon": 5}
    task["vary"] = {"is_slippery": {"choice": [0, 1]}}
    config = {"name": "cliff", "task": task, "data": {"tasks": 20, "trust_horizon": 2}}
    config |= {"rows": ["SAD"], "evaluate": {"tasks": 2}}
    config["pretrain"] = {"epochs": 1, "holdout_tasks": 1, "batch_size": 4}
    curves = label_curves(parse_experiment(config, "x"))
    assert set(curves["score"]) == {"mean"} and set(curves["N_ep"]) == {1, 2}


def test_the_command_draws_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(labels, "QUERY_STATES", 100)
    assert main(["theory", "labels", str(TINY), "--results", str(tmp_path)]) == 0
    folder = tmp_path / "theory"
    assert {path.name for path in folder.iterdir()} >= {"labels_tiny.csv", "labels_tiny.png"}
    assert "labels_tiny.csv" in capsys.readouterr().out
