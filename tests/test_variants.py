"""Rows of a table with other settings: variants and sweeps."""

from pathlib import Path

import pandas as pd
import pytest

from sad_hpc.cli import main
from sad_hpc.errors import ConfigError
from sad_hpc.experiment_file import load_experiment
from sad_hpc.launch.graph import graph
from sad_hpc.launch.job import StageJob
from sad_hpc.launch.plan import batches
from sad_hpc.run import Run
from tests.conftest import ROOT, TINY

MANY = "data.episodes_per_action"
VARIANT = f"variants={{'SAD, N_ep = 4': {{{MANY}: 4}}}}"
SWEEP = "sweep={data.trust_horizon: [2, 3], model.heads: [1, 3]}"


def test_a_variant_is_the_experiment_with_its_settings():
    whole, other = load_experiment(TINY, [VARIANT]), load_experiment(TINY, [f"{MANY}=4"])
    own, method = whole.of_row("SAD, N_ep = 4")
    assert method == "SAD"
    assert own.data_signature() == other.data_signature() != whole.data_signature()
    assert own.evaluate_signature("SAD", 1) == other.evaluate_signature("SAD", 1)
    plain = load_experiment(TINY)
    assert whole.of_row("SAD") == (whole, "SAD")
    for element in plain.elements:
        assert whole.evaluate_signature(*element) == plain.evaluate_signature(*element)
    assert whole.aggregate_signature() != plain.aggregate_signature()
    assert whole.elements == [*plain.elements, ("SAD, N_ep = 4", 0), ("SAD, N_ep = 4", 1)]


def test_a_sweep_is_every_combination_of_every_method():
    swept = load_experiment(TINY, [SWEEP])
    assert list(swept.rows) == [
        f"{method}, N = {n}, heads = {heads}"
        for method in ("SAD", "DPT")
        for n in (2, 3)
        for heads in (1, 3)
    ]
    own, method = swept.of_row("DPT, N = 2, heads = 1")
    assert (method, own.data.trust_horizon, own.model.heads) == ("DPT", 2, 1)
    # Three heads are the default: the point is the plain experiment's.
    same, _ = swept.of_row("SAD, N = 3, heads = 3")
    assert same.pretrain_signature("SAD", 0) == load_experiment(TINY).pretrain_signature("SAD", 0)


def test_shared_stages_are_one_step(tmp_path: Path):
    run = Run(load_experiment(TINY, [SWEEP, "methods=[SAD]", "seeds=[0]"]), tmp_path)
    steps = graph(run)
    stages = [step.stage for step in steps]
    assert [stages.count(stage) for stage in ("collect", "pretrain", "evaluate")] == [2, 4, 4]
    assert len({step.title for step in steps}) == len(steps)
    for step in steps:
        assert all(needed in steps for needed in step.requires)
        assert StageJob.of(run, step, tmp_path)._step() == step
    arrays = {batch.name: batch.elements for batch in batches(steps)}
    assert arrays == {"collect": 2, "pretrain-sad-seed0": 4, "evaluate": 4, "aggregate": None}
    equal = "sweep={data.episodes_per_action: [1]}"
    assert len(graph(Run(load_experiment(TINY, [equal]), tmp_path))) == len(
        graph(Run(load_experiment(TINY), tmp_path))
    )


def test_the_other_experiments_variants_are_evaluated():
    folder = ROOT / "tests/configs"
    variant = "variants={small: {model.heads: 1}}"
    gaussian = load_experiment(folder / "tiny_gaussian.yaml", [variant])
    bernoulli = load_experiment(folder / "tiny_bernoulli.yaml", [f"pretrained.{variant}"])
    own, method = bernoulli.of_row("small")
    trained, _ = gaussian.of_row("small")
    assert own.source.model.heads == own.model.heads == 1
    assert own.pretrain_signature(method, 0) == trained.pretrain_signature(method, 0)
    assert own.evaluate_signature(method, 0) != trained.evaluate_signature(method, 0)
    with pytest.raises(ConfigError, match="variants"):
        load_experiment(folder / "tiny_bernoulli.yaml", ["variants={small: {model.heads: 2}}"])


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("variants={SAD: {model.heads: 1}}", "no name for a variant"),
        ("variants={'a/b': {model.heads: 1}}", "no name for a variant"),
        ("variants={dpt_star: {model.heads: 1}}", "no name for a variant"),
        ("variants={x: {task.size: 4}}", "task.size"),
        ("variants={x: {seeds: [1]}}", "seeds"),
        ("variants={x: {}}", "no setting differs"),
        ("variants={x: {method: ABC, model.heads: 1}}", "unknown method 'ABC'"),
        ("variants={x: {model.haeds: 1}}", "did you mean 'heads'"),
        ("variants={x: {model.heads: 0}}", "model.heads"),
        ("variants={x: {pretrain.holdout_tasks: 100000}}", "holdout_tasks"),
        ("variants={x y: {model.heads: 1}, x_y: {model.heads: 2}}", "repeats"),
        ("sweep={model.heads: []}", "no values"),
        ("sweep={model.heads: [1, 1]}", "repeats"),
        ("sweep={heads: [1]}", "'heads'"),
    ],
)
def test_impossible_rows_are_refused(override: str, said: str):
    with pytest.raises(ConfigError, match=said):
        load_experiment(TINY, [override])


def table_of(folder: Path, *arguments: str) -> Path:
    """The results of an experiment that goes through its stages one after another."""
    folders = ["--runs", str(folder / "runs"), "--results", str(folder / "results")]
    settings = ["methods=[SAD]", "seeds=[0]", "pretrain.epochs=1", *arguments]
    for command in ("collect", "pretrain", "evaluate", "aggregate"):
        assert main([command, str(TINY), *settings, *folders]) == 0
    name = next((each[5:] for each in arguments if each.startswith("name=")), "tiny")
    return folder / "results" / name


def test_a_sweeps_points_are_the_experiments_with_their_settings(tmp_path: Path):
    swept = table_of(tmp_path, f"sweep={{{MANY}: [1, 4]}}")
    points = pd.read_csv(swept / "sweep.csv").set_index(MANY)
    assert list(points.index) == [1, 4] and (points["method"] == "SAD").all()
    assert (swept / "sweep.png").stat().st_size > 10_000
    assert "SAD, N_ep = 4" in (swept / "README.md").read_text()
    for episodes in (1, 4):
        alone = table_of(tmp_path, f"{MANY}={episodes}", f"name=alone{episodes}")
        summary = pd.read_csv(alone / "summary.csv").set_index(["method", "mode", "subset"])
        for mode in ("offline", "online"):
            assert points.loc[episodes, mode] == summary.loc[("SAD", mode, "all"), "mean"]
        labels = pd.read_csv(alone / "labels.csv").iloc[0]
        for name in ("label_accuracy", "label_transitions", "context_transitions"):
            assert points.loc[episodes, name] == labels[name]
    better = points["label_accuracy"]
    assert better[1] < better[4] and points["offline"].nunique() == 2
    assert points["context_transitions"].tolist() == [9, 9]


def test_a_variant_is_a_row_beside_the_methods(tmp_path: Path):
    table = pd.read_csv(table_of(tmp_path, VARIANT) / "summary.csv")
    assert set(table["method"]) == {"SAD", "SAD, N_ep = 4", "optimal", "random"}
