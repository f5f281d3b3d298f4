"""Rows of a table with other settings: variants and sweeps."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from sad_hpc import results
from sad_hpc.aggregate.sweep import draw_sweep, sweep_table
from sad_hpc.cli import main
from sad_hpc.distill import make_block
from sad_hpc.errors import ConfigError, SadError
from sad_hpc.experiment.families import TaskConfig
from sad_hpc.experiment.load import load_experiment
from sad_hpc.experiment.rows import is_recipe, method_of, slug, sweep_variants
from sad_hpc.experiment.sections import DataConfig
from sad_hpc.launch.graph import graph
from sad_hpc.launch.job import StageJob
from sad_hpc.launch.plan import batches, dependency
from sad_hpc.storage.run import Run
from sad_hpc.tasks.bandit import BernoulliBanditConfig, GaussianBanditConfig
from sad_hpc.tasks.base import make_family
from sad_hpc.tasks.darkroom import DarkroomConfig
from sad_hpc.tasks.miniworld.family import MiniworldConfig
from sad_hpc.tasks.permuted_darkroom import PermutedDarkroomConfig
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


def test_rows_with_a_plus_have_the_settings_of_the_recipe():
    recipe = "recipe={pretrain.repeated_contexts: 0.5, model.layers: 2}"
    rows = "variants={SAD+: {}, 'SAD+, deep': {model.layers: 4}, 'SAD, deep': {model.layers: 4}}"
    whole = load_experiment(TINY, [rows, recipe])
    found = {}
    for row in list(whole.rows)[-3:]:
        own, method = whole.of_row(row)
        found[row] = method, own.pretrain.repeated_contexts, own.model.layers
    assert found == {
        "SAD+": ("SAD", 0.5, 2),
        "SAD+, deep": ("SAD", 0.5, 4),
        "SAD, deep": ("SAD", 0.0, 4),
    }
    assert [slug(row) for row in found] == ["sad_plus", "sad_plus_deep", "sad_deep"]
    assert slug("DPT*+") == "dpt_star_plus"
    alone = load_experiment(TINY, ["pretrain.repeated_contexts=0.5", "model.layers=2"])
    own, method = whole.of_row("SAD+")
    assert own.evaluate_signature(method, 0) == alone.evaluate_signature("SAD", 0)
    with pytest.raises(ConfigError, match="no setting differs"):
        load_experiment(TINY, ["variants={SAD+: {}}"])


def test_repetitions_are_for_labels_of_their_own_and_certain_rewards():
    with pytest.raises(ConfigError, match="AD and DIT learn from whole episodes"):
        load_experiment(TINY, ["methods=[AD, DIT]", "pretrain.repeated_contexts=0.5"])
    with pytest.raises(ConfigError, match="noise"):
        load_experiment(ROOT / "configs/gaussian_bandit.yaml", ["pretrain.repeated_contexts=0.5"])
    with pytest.raises(ConfigError, match="repeated_rewards=9 does nothing"):
        load_experiment(TINY, ["pretrain.repeated_rewards=9"])


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


@pytest.mark.parametrize(
    "config",
    [
        DarkroomConfig(),
        PermutedDarkroomConfig(),
        GaussianBanditConfig(horizon=9),
        BernoulliBanditConfig(horizon=9),
        MiniworldConfig(),
    ],
    ids=lambda config: config.family,
)
def test_rows_with_other_numbers_of_tasks_have_the_same_first_test_tasks(config: TaskConfig):
    family = make_family(config)
    few, many = (
        make_block(family, DataConfig(tasks=tasks, trust_horizon=3, block_tasks=200), "test", 0)
        for tasks in (1500, 2500)
    )
    for name, values in many.arrays.items():
        if name.startswith(("tasks/", "context/", "episodes/")):
            assert np.array_equal(few.arrays[name], values[: len(few.arrays[name])]), name


def test_a_sweeps_points_are_worked_out_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    calls: list[object] = []

    def counted(sweep, methods):
        calls.append(sweep)
        return sweep_variants(sweep, methods)

    monkeypatch.setattr("sad_hpc.experiment.experiment.sweep_variants", counted)
    points = f"sweep={{data.trust_horizon: {list(range(1, 101))}}}"
    graph(Run(load_experiment(TINY, [points, "methods=[SAD]", "seeds=[0]"]), tmp_path))
    assert len(calls) <= 2


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
    variant = "variants={'SAD, small': {model.heads: 1}}"
    gaussian = load_experiment(folder / "tiny_gaussian.yaml", [variant])
    bernoulli = load_experiment(folder / "tiny_bernoulli.yaml", [f"pretrained.{variant}"])
    own, method = bernoulli.of_row("SAD, small")
    trained, _ = gaussian.of_row("SAD, small")
    assert own.source.model.heads == own.model.heads == 1
    assert own.pretrain_signature(method, 0) == trained.pretrain_signature(method, 0)
    assert own.evaluate_signature(method, 0) != trained.evaluate_signature(method, 0)
    assert bernoulli.elements == gaussian.elements
    graph(Run(bernoulli, Path("runs")))
    for override in (
        "variants={'SAD, small': {model.heads: 2}}",
        "sweep={model.heads: [2]}",
        "sweep={}",
    ):
        swept = ["pretrained.sweep={model.heads: [1, 3]}"] if "sweep" in override else []
        with pytest.raises(ConfigError, match="leave variants and sweep to it"):
            load_experiment(folder / "tiny_bernoulli.yaml", [*swept, override])


def test_rows_that_differ_in_what_a_model_is_shown_share_one_training(tmp_path: Path):
    shown = "{'SAD, memory': {evaluate.memory: history}, 'SAD, e': {evaluate.context: episodes}}"
    overrides = [f"variants={shown}", "methods=[SAD]", "seeds=[0]"]
    run = Run(load_experiment(TINY, overrides), tmp_path)
    steps = graph(run)
    stages = [step.stage for step in steps]
    assert [stages.count(stage) for stage in ("collect", "pretrain", "evaluate")] == [1, 1, 3]
    for row, (memory, context) in {
        "SAD": ("episode", "transitions"),
        "SAD, memory": ("history", "transitions"),
        "SAD, e": ("episode", "episodes"),
    }.items():
        settings = run.of_row(row)[0].experiment.evaluate
        assert (settings.memory, settings.context) == (memory, context)


def test_other_tasks_weights_are_shown_what_the_rows_say(tmp_path: Path):
    """Where the models are another experiment's, the rest of `evaluate` is this one's own."""
    (tmp_path / "others.yaml").write_text(
        f"base: {TINY}\npretrained: {TINY}\nname: others\ndata: {{seed: 7}}\n"
    )
    row = "pretrained.variants={'SAD, memory': {evaluate.memory: history}}"
    overrides = [row, "evaluate.online_episodes=5"]
    own, _ = load_experiment(tmp_path / "others.yaml", overrides).of_row("SAD, memory")
    assert (own.evaluate.memory, own.evaluate.online_episodes) == ("history", 5)
    assert own.source.evaluate.online_episodes != 5


@pytest.mark.parametrize("setting", ["memory=history", "context=episodes"])
def test_bandits_have_one_kind_of_context(setting: str):
    path = ROOT / "tests/configs/tiny_gaussian.yaml"
    with pytest.raises(ConfigError, match=f"evaluate.{setting}.*one kind of context"):
        load_experiment(path, [f"evaluate.{setting}"])


@pytest.mark.parametrize(
    ("name", "method", "files"),
    [
        ("SAD+", "SAD", "sad_plus"),
        ("DPT*+", "DPT*", "dpt_star_plus"),
        ("SAD+, history", "SAD", "sad_plus_history"),
        ("DPT*+, history", "DPT*", "dpt_star_plus_history"),
    ],
)
def test_a_recipe_is_a_variant_with_a_short_name(name: str, method: str, files: str):
    experiment = load_experiment(TINY, [f"variants={{'{name}': {{model.heads: 1}}}}"])
    own, found = experiment.of_row(name)
    assert (found, own.model.heads, slug(name)) == (method, 1, files)
    assert (method_of(name), is_recipe(name)) == (method, True)


def test_other_names_are_no_recipes():
    assert [slug(name) for name in ("SAD", "DPT*", "DPT*, a+b")] == [
        "sad",
        "dpt_star",
        "dpt_star_a_b",
    ]
    assert not any(map(is_recipe, ("SAD", "SAD, a+b", "ABC+", "ideal, history", "optimal")))
    assert method_of("SAD, a+b") == "SAD"
    assert [method_of(name) for name in ("ideal, history", "optimal", "UCB", "")] == [None] * 4


@pytest.mark.parametrize(
    ("override", "said"),
    [
        *(
            (f"variants={{'{name}': {{model.heads: 1}}}}", "no name for a variant")
            for name in (
                *("SAD", "random", "dpt_star, x", "SAD, a/b", "ABC, x", "SAD,", "SAD, "),
                *("ABC+", "+", "SAD++", "SAD +", "SAD+,", "SAD+ x", "SAD+, a/b"),
            )
        ),
        ("variants={'SAD, x': {task.size: 4}}", "task.size"),
        ("variants={'SAD, x': {data.seed: 4}}", "data.seed"),
        ("variants={'SAD, x': {evaluate.seed: 4}}", "evaluate.seed.*of evaluate: memory, context"),
        ("variants={'SAD, x': {seeds: [1]}}", "seeds"),
        ("variants={'SAD, x': {data.tasks: 30}}", "exceeds the"),
        ("variants={'SAD, x': {}}", "no setting differs"),
        ("variants={'SAD, x': {model.haeds: 1}}", "did you mean 'heads'"),
        ("variants={'SAD, x': {model.heads: 0}}", "model.heads"),
        ("variants={'SAD, x': {pretrain.holdout_tasks: 100000}}", "holdout_tasks"),
        ("variants={'SAD, x y': {model.heads: 1}, 'SAD, x_y': {model.heads: 2}}", "same files"),
        ("variants={'SAD, .': {model.heads: 1}}", "same files"),
        ("variants={'SAD, x': {pretrain.log_seconds: 1.0}}", "cannot change a result"),
        ("sweep={model.heads: []}", "no values"),
        ("sweep={model.heads: [1, 1]}", "repeats"),
        (
            f"sweep={{model.heads: {list(range(1, 80))}, model.layers: {list(range(1, 80))}}}",
            "12,482 rows are too many",
        ),
        ("sweep={heads: [1]}", "'heads'"),
        ("sweep={data.behavior_policy: [uniform]}", "behavior_policy"),
        ("sweep={model.heads: [[1], [2]]}", "numbers, words or null"),
        ("sweep={data.trust_horizon: [3, auto]}", "valid integer, not 'auto'"),
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


@pytest.mark.slow
def test_a_sweeps_points_are_the_experiments_with_their_settings(tmp_path: Path):
    swept = table_of(tmp_path, f"sweep={{{MANY}: [1, 4]}}")
    points = pd.read_csv(swept / "sweep.csv").set_index(MANY)
    assert list(points.index) == [1, 4] and (points["method"] == "SAD").all()
    assert (swept / "sweep.png").stat().st_size > 10_000
    assert r"SAD, N\_ep = 4" in (swept / "README.md").read_text()
    for episodes in (1, 4):
        alone = table_of(tmp_path, f"{MANY}={episodes}", f"name=alone{episodes}")
        summary = pd.read_csv(alone / "summary.csv").set_index(["method", "mode", "subset"])
        for mode in ("offline", "online"):
            assert points.loc[episodes, mode] == summary.loc[("SAD", mode, "all"), "mean"]
        labels = pd.read_csv(alone / "labels.csv").iloc[0]
        for name in ("label_accuracy", "label_transitions", "context_transitions"):
            assert points.loc[episodes, name] == labels[name]
    spent = points["label_transitions"]
    assert 2 * spent[1] < spent[4] and points["offline"].nunique() == 2
    assert points["context_transitions"].tolist() == [9, 9]


def test_a_variant_is_a_row_beside_the_methods(tmp_path: Path):
    folder = table_of(tmp_path, VARIANT)
    rows = {"SAD", "SAD, N_ep = 4"}
    table = pd.read_csv(folder / "summary.csv").set_index(["method", "mode", "subset"])["mean"]
    assert set(table.index.get_level_values(0)) == {*rows, "ideal", "optimal", "random"}
    values = results.load(folder)
    assert set(values["method"]) == rows
    offline = values[values["mode"] == "offline"].groupby("method", observed=True)["value"].mean()
    for row in rows:
        assert offline[row] == pytest.approx(table[row, "offline", "all"])
    assert offline.nunique() == 2


@pytest.mark.parametrize(
    ("key", "values", "places", "scale"),
    [
        ("data.trust_horizon", [2, 4, 32], [2, 4, 32], "log"),
        ("model.dropout", [0.0, 0.1, 0.9], [0, 0.1, 0.9], "linear"),
        ("model.head_dim", [None, 8, 16], [0, 1, 2], "linear"),
        ("pretrain.schedule", ["cosine", "constant"], [0, 1], "linear"),
    ],
)
def test_a_sweeps_figure_has_every_point(
    key: str, values: list[object], places: list[float], scale: str, monkeypatch: pytest.MonkeyPatch
):
    experiment = load_experiment(TINY, [f"sweep={json.dumps({key: values})}", "methods=[SAD]"])
    summary = pd.DataFrame(
        {"method": row, "mode": "offline", "subset": "all", "metric": "return", "mean": number,
         "std": 0.1, "n_seeds": 2}
        for number, row in enumerate(experiment.rows)
    )  # fmt: skip
    table = sweep_table(experiment, pd.DataFrame({"method": []}), summary)
    figures: list[Figure] = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, *_, **__: figures.append(figure))
    with pytest.raises(SadError):  # the stand-in writes no file
        draw_sweep(Path("sweep.png"), "darkroom", table, [key], summary)
    (axes,) = figures[0].axes
    figures[0].canvas.draw()
    (line,) = axes.lines[:1]
    assert list(line.get_xdata(orig=False)) == pytest.approx(places)
    assert list(line.get_ydata()) == list(range(len(values)))
    assert axes.get_xscale() == scale


def test_a_broken_dataset_does_not_hold_other_rows_back(tmp_path: Path):
    run = Run(load_experiment(TINY, [SWEEP, "methods=[SAD]", "seeds=[0]"]), tmp_path)
    ids, clauses = {}, {}
    for number, batch in enumerate(batches(graph(run))):
        clauses[batch.name] = dependency(batch, ids)
        ids |= {step.title: f"{number}_{index}" for index, step in enumerate(batch.steps)}
    assert clauses["pretrain-sad-seed0"] == "afterany:0_0:0_1"
    assert clauses["evaluate"] == "afterany:0_0:0_1:1_0:1_1:1_2:1_3"
    assert clauses["aggregate"] == "afterok:2_0:2_1:2_2:2_3"


def test_status_and_scripts_name_the_rows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("shutil.which", lambda name: None)  # no Slurm
    folders = ["--runs", str(tmp_path / "runs"), "--results", str(tmp_path / "results")]
    arguments = [str(TINY), SWEEP, "methods=[SAD]", "seeds=[0]", *folders]
    assert main(["launch", *arguments, "--dry-run"]) == 0
    printed = capsys.readouterr().out
    assert printed.count("sad-hpc collect") == 1
    assert printed.count("--method 'SAD, N = 2, heads = 1' --seed 0") == 2
    run = Run(load_experiment(TINY, arguments[1:4]), tmp_path / "runs")
    run.prepare(["test"])
    assert main(["status", str(run.path)]) == 0
    assert capsys.readouterr().out.count("(SAD, N = 2, heads = 1)") == 3
