"""An experiment that evaluates the models of another one: Bernoulli bandits on Gaussian models."""

import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from sad_hpc.cli import main
from sad_hpc.errors import ConfigError
from sad_hpc.experiment.config import apply_overrides, read_yaml
from sad_hpc.experiment.load import load_experiment, parse_experiment
from sad_hpc.launch.graph import graph
from sad_hpc.launch.plan import batches, dependency
from sad_hpc.storage.run import Run
from tests.conftest import ROOT

CONFIGS = ROOT / "tests/configs"
GAUSSIAN, BERNOULLI = CONFIGS / "tiny_gaussian.yaml", CONFIGS / "tiny_bernoulli.yaml"


def sad_hpc(folder: Path, command: str, config: Path, *arguments: str) -> int:
    folders = ["--runs", str(folder / "runs"), "--results", str(folder / "results")]
    return main([command, str(config), *arguments, *folders])


def test_it_inherits_methods_seeds_model_and_training():
    own, trained = load_experiment(BERNOULLI), load_experiment(GAUSSIAN)
    assert own.source == trained
    assert own.elements == trained.elements
    for method, seed in own.elements:
        assert own.pretrain_signature(method, seed) == trained.pretrain_signature(method, seed)
        assert own.evaluate_signature(method, seed) != trained.evaluate_signature(method, seed)


def test_overrides_reach_into_the_other_experiment():
    own = load_experiment(BERNOULLI, ["pretrained.pretrain.epochs=3"])
    trained = load_experiment(GAUSSIAN, ["pretrain.epochs=3"])
    assert own.pretrain_signature("SAD", 0) == trained.pretrain_signature("SAD", 0)


def test_what_it_writes_can_be_read_again():
    own = load_experiment(BERNOULLI)
    assert parse_experiment(own.model_dump(mode="json"), "x") == own


def test_other_test_tasks_are_another_evaluation():
    first = load_experiment(BERNOULLI).evaluate_signature("SAD", 0)
    assert load_experiment(BERNOULLI, ["data.seed=1"]).evaluate_signature("SAD", 0) != first


@pytest.mark.parametrize(
    "override, named",
    [
        ("pretrain.epochs=9", r"tiny_gaussian decides .*epochs: 1 -> 9.*pretrained\.pretrain"),
        ("model.layers=2", r"tiny_gaussian decides model.*pretrained\.model"),
        ("rows=[SAD, XX]", "XX"),
        ("seeds=[7]", r"tiny_gaussian does not train the seeds \[7\]"),
        ("task.arms=4", "n_actions 3, this task has 4"),
        ("task.horizon=21", r"task\.horizon=20, not 21"),
        ("pretrained=tiny_gaussian.yaml", "'pretrained' must be"),
        ("pretrained.pretrained={}", "required key"),
        ("pretrained.pretrain.epochs=0", r"pretrained.*epochs"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_named(override: str, named: str):
    with pytest.raises(ConfigError, match=named):
        load_experiment(BERNOULLI, [override])


@pytest.mark.parametrize("override", ["task.split_seed=1", "task.train_goals=7"])
def test_other_training_tasks_of_the_same_family_are_refused(override: str):
    darkroom = read_yaml(CONFIGS / "tiny.yaml")
    other = {key: darkroom[key] for key in ("task", "data", "evaluate")}
    other |= {"name": "again", "pretrained": darkroom}
    assert parse_experiment(other, "x").source.name == "tiny"
    with pytest.raises(ConfigError, match=rf"{override}, but .* in tiny, whose models"):
        parse_experiment(apply_overrides(other, [override]), "x")


def test_without_the_models_nothing_starts(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert sad_hpc(tmp_path, "launch", BERNOULLI) == 1
    error = capsys.readouterr().err
    assert "tiny_gaussian, but" in error and "lacks AD seed 0, DPT seed 0" in error
    assert "Traceback" not in error
    assert not (tmp_path / "runs").exists()
    assert sad_hpc(tmp_path, "collect", BERNOULLI) == 0
    assert sad_hpc(tmp_path, "evaluate", BERNOULLI) == 1
    assert "tiny_gaussian AD seed 0 is not trained" in capsys.readouterr().err


def test_it_trains_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    steps = graph(Run(load_experiment(BERNOULLI), tmp_path))
    assert [step.stage for step in steps] == ["collect", *["evaluate"] * 5, "aggregate"]
    collect, evaluations, _ = batches(steps)
    assert dependency(evaluations, {collect.steps[0].title: "7"}) == "afterok:7"
    assert sad_hpc(tmp_path, "pretrain", BERNOULLI) == 1
    assert "those of tiny_gaussian" in capsys.readouterr().err


@pytest.mark.slow
def test_from_trained_models_to_the_table(tmp_path: Path):
    for command in ("collect", "pretrain"):
        assert sad_hpc(tmp_path, command, GAUSSIAN) == 0
    assert sad_hpc(tmp_path, "launch", BERNOULLI) == 0
    summary = pd.read_csv(tmp_path / "results/tiny_bernoulli/summary.csv")
    assert set(summary["task_family"]) == {"bernoulli_bandit"}
    assert {"AD", "DPT", "DIT", "DPT*", "SAD", "UCB", "optimal"} <= set(summary["row"])
    offline = summary[(summary["mode"] == "offline") & (summary["subset"] == "all")]
    loss = offline.set_index("row")["mean"]
    assert loss["optimal"] == 0 < loss["empirical mean"] < loss["random"]
    assert np.isfinite(loss).all()
    stages = json.loads((tmp_path / "results/tiny_bernoulli/provenance.json").read_text())["stages"]
    datasets = {name for name in stages if name.startswith("collect/")}
    both = [load_experiment(config) for config in (BERNOULLI, GAUSSIAN)]
    assert datasets == {f"collect/{each.data_signature()}" for each in both}
    stored = tmp_path / "results/tiny_bernoulli/config.yaml"
    assert load_experiment(stored) == load_experiment(BERNOULLI)
    assert load_experiment(stored, ["pretrained.pretrain.epochs=3"]).pretrain.epochs == 3
    again = Run(load_experiment(BERNOULLI), tmp_path / "runs")
    assert all(step.complete for step in graph(again))
    # New tables alone need no models.
    shutil.rmtree(tmp_path / "runs/tiny_gaussian/checkpoints")
    assert sad_hpc(tmp_path, "launch", BERNOULLI) == 0
