"""Rows of a table: methods with other settings, and grids of settings."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from sad_hpc import results
from sad_hpc.aggregate.figures import draw_sweep, sweep_table
from sad_hpc.aggregate.results_file import RowFacts
from sad_hpc.aggregate.results_folder import ResultsFolder
from sad_hpc.cli import main
from sad_hpc.distill import make_block
from sad_hpc.errors import ConfigError, UserError
from sad_hpc.experiment.families import TaskConfig
from sad_hpc.experiment.load import load_experiment, parse_experiment
from sad_hpc.experiment.rows import is_recipe, method_of, rows_of, slug
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
VARIANT = f"rows=[SAD, DPT, {{name: 'SAD, N_ep = 4', method: SAD, set: {{{MANY}: 4}}}}]"


def grid(values: dict[str, list[object]], *methods: str) -> str:
    """An override by which the rows are grids of methods."""
    return f"rows={json.dumps([{'method': method, 'grid': values} for method in methods])}"


HEADS = {"data.trust_horizon": [2, 3], "model.heads": [1, 3]}
SWEEP = grid(HEADS, "SAD")


def row(name: str, settings: str, method: str = "SAD", more: str = "") -> str:
    """An override by which the rows are SAD, DPT and one more."""
    own = f"{{name: '{name}', method: {method}, set: {settings}{more}}}"
    return f"rows=[SAD, DPT, {own}]"


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
    recipe = "recipes={plus: {pretrain.resample_probability: 0.5, model.layers: 2}}"
    deep = "{name: 'SAD+, deep', method: SAD, use: plus, set: {model.layers: 4}}"
    plain = "{name: 'SAD, deep', method: SAD, set: {model.layers: 4}}"
    rows = f"rows=[SAD, {{name: SAD+, method: SAD, use: plus}}, {deep}, {plain}]"
    whole = load_experiment(TINY, [rows, recipe])
    found = {}
    for name in list(whole.by_row)[-3:]:
        own, method = whole.of_row(name)
        found[name] = method, own.pretrain.resample_probability, own.model.layers
    assert found == {
        "SAD+": ("SAD", 0.5, 2),
        "SAD+, deep": ("SAD", 0.5, 4),
        "SAD, deep": ("SAD", 0.0, 4),
    }
    assert [slug(name) for name in found] == ["sad_plus", "sad_plus_deep", "sad_deep"]
    assert slug("DPT*+") == "dpt_star_plus"
    alone = load_experiment(TINY, ["pretrain.resample_probability=0.5", "model.layers=2"])
    own, method = whole.of_row("SAD+")
    assert own.evaluate_signature(method, 0) == alone.evaluate_signature("SAD", 0)
    with pytest.raises(ConfigError, match="no setting differs"):
        load_experiment(TINY, ["rows=[{name: SAD+, method: SAD}]"])
    with pytest.raises(ConfigError, match="unknown recipe 'minus'; valid: plus"):
        load_experiment(TINY, [recipe, "rows=[{name: SAD+, method: SAD, use: minus}]"])


def test_repetitions_are_for_labels_of_their_own_and_certain_rewards():
    with pytest.raises(ConfigError, match="AD learns from whole episodes"):
        load_experiment(TINY, ["rows=[DIT, AD]", "pretrain.resample_probability=0.5"])
    with pytest.raises(ConfigError, match="noise"):
        bandit = ROOT / "configs/gaussian_bandit.yaml"
        load_experiment(bandit, ["pretrain.resample_probability=0.5"])
    with pytest.raises(ConfigError, match="max_reward_weight=9 has no effect"):
        load_experiment(TINY, ["pretrain.max_reward_weight=9"])


def test_a_sweep_is_every_combination_of_every_method():
    swept = load_experiment(TINY, [grid(HEADS, "SAD", "DPT")])
    assert list(swept.by_row) == [
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
        if name.startswith(("tasks/", "transitions/", "episodes/")):
            assert np.array_equal(few.arrays[name], values[: len(few.arrays[name])]), name


def test_a_sweeps_points_are_worked_out_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    calls: list[object] = []

    def counted(given, recipes):
        calls.append(given)
        return rows_of(given, recipes)

    monkeypatch.setattr("sad_hpc.experiment.experiment.rows_of", counted)
    points = grid({"data.trust_horizon": list(range(1, 101))}, "SAD")
    run = Run(load_experiment(TINY, [points, "seeds=[0]"]), tmp_path)
    graph(run)
    # Once for the experiment, and once for the one row of each point.
    assert sum(len(run.experiment.rows[0].grid) == len(each[0].grid) for each in calls) <= 2


def test_shared_stages_are_one_step(tmp_path: Path):
    run = Run(load_experiment(TINY, [SWEEP, "seeds=[0]"]), tmp_path)
    steps = graph(run)
    stages = [step.stage for step in steps]
    assert [stages.count(stage) for stage in ("collect", "pretrain", "evaluate")] == [2, 4, 4]
    assert len({step.title for step in steps}) == len(steps)
    for step in steps:
        assert all(needed in steps for needed in step.requires)
        assert StageJob.of(run, step, tmp_path)._step() == step
    arrays = {batch.name: batch.elements for batch in batches(steps)}
    assert arrays == {"collect": 2, "pretrain-sad-seed0": 4, "evaluate": 4, "aggregate": None}
    equal = grid({"data.episodes_per_action": [1]}, "SAD", "DPT")
    assert len(graph(Run(load_experiment(TINY, [equal]), tmp_path))) == len(
        graph(Run(load_experiment(TINY), tmp_path))
    )


def test_the_other_experiments_rows_are_evaluated():
    folder = ROOT / "tests/configs"
    variant = "rows=[SAD, {name: 'SAD, small', method: SAD, set: {model.heads: 1}}]"
    gaussian = load_experiment(folder / "tiny_gaussian.yaml", [variant])
    bernoulli = load_experiment(folder / "tiny_bernoulli.yaml", [f"pretrained.{variant}"])
    own, method = bernoulli.of_row("SAD, small")
    trained, _ = gaussian.of_row("SAD, small")
    assert own.source.model.heads == own.model.heads == 1
    assert own.pretrain_signature(method, 0) == trained.pretrain_signature(method, 0)
    assert own.evaluate_signature(method, 0) != trained.evaluate_signature(method, 0)
    assert bernoulli.elements == gaussian.elements
    graph(Run(bernoulli, Path("runs")))
    for own in (row("SAD, small", "{model.heads: 2}"), grid({"model.heads": [2]}, "SAD")):
        with pytest.raises(ConfigError, match="remove `rows` here"):
            load_experiment(folder / "tiny_bernoulli.yaml", [own])


def test_rows_that_differ_in_what_a_model_is_shown_share_one_training(tmp_path: Path):
    memory = "{name: 'SAD, memory', method: SAD, set: {evaluate.memory: history}}"
    episodes = "{name: 'SAD, e', method: SAD, set: {evaluate.context: episodes}}"
    overrides = [f"rows=[SAD, {memory}, {episodes}]", "seeds=[0]"]
    run = Run(load_experiment(TINY, overrides), tmp_path)
    steps = graph(run)
    stages = [step.stage for step in steps]
    assert [stages.count(stage) for stage in ("collect", "pretrain", "evaluate")] == [1, 1, 3]
    for name, (memory, context) in {
        "SAD": ("episode", "transitions"),
        "SAD, memory": ("history", "transitions"),
        "SAD, e": ("episode", "episodes"),
    }.items():
        settings = run.of_element(name, 0)[0].experiment.evaluate
        assert (settings.memory, settings.context) == (memory, context)


def test_other_tasks_weights_are_shown_what_the_rows_say(tmp_path: Path):
    """With the models of another experiment, the other settings of `evaluate` stay this one's."""
    (tmp_path / "others.yaml").write_text(
        f"base: {TINY}\npretrained: {TINY}\nname: others\ndata: {{seed: 7}}\n"
    )
    memory = row("SAD, memory", "{evaluate.memory: history}")
    overrides = [memory, f"pretrained.{memory}", "evaluate.online_episodes=5"]
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
    experiment = load_experiment(TINY, [row(name, "{model.heads: 1}", method)])
    own, found = experiment.of_row(name)
    assert (found, own.model.heads, slug(name)) == (method, 1, files)
    assert (method_of(name), is_recipe(name)) == (method, True)


def test_other_names_are_no_recipes():
    assert [slug(name) for name in ("SAD", "DPT*", "DPT*, a+b")] == [
        "sad",
        "dpt_star",
        "dpt_star_a_b",
    ]
    assert not any(map(is_recipe, ("SAD", "SAD, a+b", "ABC+", "Bayes-optimal, history", "optimal")))
    assert method_of("SAD, a+b") == "SAD"
    names = ("Bayes-optimal, history", "optimal", "UCB", "")
    assert [method_of(name) for name in names] == [None] * 4


@pytest.mark.parametrize(
    ("override", "said"),
    [
        *(
            (row(name, "{model.heads: 1}"), "not a valid name for a row")
            for name in (
                *("random", "dpt_star, x", "SAD, a/b", "ABC, x", "SAD,", "SAD, ", "DPT, x"),
                *("ABC+", "+", "SAD++", "SAD +", "SAD+,", "SAD+ x", "SAD+, a/b"),
            )
        ),
        (row("SAD", "{model.heads: 1}"), "give the row a name"),
        ("rows=[SAD, SAD]", "repeat 'SAD'"),
        ("rows=[BC]", "unknown method 'BC'; valid: AD, DPT"),
        ("rows=[{name: SAD}]", "rows.0.method"),
        (row("SAD, x", "{task.size: 4}"), "task.size"),
        (row("SAD, x", "{data.seed: 4}"), "data.seed"),
        (row("SAD, x", "{evaluate.seed: 4}"), "evaluate.seed.*of evaluate: memory, context"),
        (row("SAD, x", "{seeds: [1]}"), "seeds"),
        (row("SAD, x", "{data.tasks: 30}"), "exceeds the"),
        (row("SAD, x", "{}"), "no setting differs"),
        (row("SAD, x", "{model.haeds: 1}"), "did you mean 'heads'"),
        (row("SAD, x", "{model.heads: 0}"), "model.heads"),
        (row("SAD, x", "{pretrain.holdout_tasks: 100000}"), "holdout_tasks"),
        (row("SAD, .", "{model.heads: 1}"), "same file names"),
        (row("SAD, x", "{pretrain.log_seconds: 1.0}"), "cannot change a result"),
        (row("SAD, x", "{model.heads: 1}", more=", grid: {model.layers: [1]}"), "have `name`"),
        (grid({"model.heads": []}, "SAD"), "no values"),
        (grid({"model.heads": [1, 1]}, "SAD"), "repeats"),
        (
            grid({"model.heads": list(range(1, 80)), "model.layers": list(range(1, 180))}, "SAD"),
            "14,141 rows are too many",
        ),
        (grid({"model.heads": [[1], [2]]}, "SAD"), "numbers, words or null"),
        (grid({"data.trust_horizon": [3, "auto"]}, "SAD"), "valid integer, not 'auto'"),
    ],
)
def test_impossible_rows_are_refused(override: str, said: str):
    with pytest.raises(ConfigError, match=said):
        load_experiment(TINY, [override])


FILE = """
base: {tiny}
recipes:
  wide: {{model.heads: 2}}
rows:
  - {{method: SAD, replicates: 1}}
  - {{name: SAD+, method: SAD, use: wide}}
  - {{method: DPT, grid: {{model.heads: [1, 2]}}}}
  - DPT*
claims:
  - [SAD+, SAD]
  - [DPT*, SAD]
"""


def test_rows_of_the_file_are_chosen_by_name(tmp_path: Path):
    (tmp_path / "config.yaml").write_text(FILE.format(tiny=TINY))
    chosen = load_experiment(tmp_path / "config.yaml", ["rows=[SAD, SAD+, AD]"])
    whole = load_experiment(tmp_path / "config.yaml")
    assert list(chosen.by_row) == ["SAD", "SAD+", "AD"]
    for row in ("SAD", "SAD+"):
        assert chosen.by_row[row] == whole.by_row[row]
    assert chosen.claims == [["SAD+", "SAD"]]
    alone = load_experiment(tmp_path / "config.yaml", ["rows=[SAD+]"])
    assert list(alone.by_row) == ["SAD+"] and alone.claims == []


def table_of(folder: Path, *arguments: str) -> Path:
    """The results of an experiment that goes through its stages one after another."""
    folders = ["--runs", str(folder / "runs"), "--results", str(folder / "results")]
    rows = [] if any(each.startswith("rows=") for each in arguments) else ["rows=[SAD]"]
    settings = [*rows, "seeds=[0]", "pretrain.epochs=1", *arguments]
    for command in ("collect", "pretrain", "evaluate", "aggregate"):
        assert main([command, str(TINY), *settings, *folders]) == 0
    name = next((each[5:] for each in arguments if each.startswith("name=")), "tiny")
    return folder / "results" / name


@pytest.mark.slow
def test_a_sweeps_points_are_the_experiments_with_their_settings(tmp_path: Path):
    swept = table_of(tmp_path, grid({MANY: [1, 4]}, "SAD"))
    found = ResultsFolder(swept)
    points = sweep_table(found.results.rows.values(), [MANY], found.summary).set_index(MANY)
    assert list(points.index) == [1, 4] and (points["method"] == "SAD").all()
    assert (swept / "sweep.png").stat().st_size > 10_000
    assert r"SAD, N\_ep = 4" in (swept / "README.md").read_text()
    for episodes in (1, 4):
        alone = table_of(tmp_path, f"{MANY}={episodes}", f"name=alone{episodes}")
        summary = pd.read_csv(alone / "summary.csv").set_index(["row", "mode", "subset"])
        for mode in ("offline", "online"):
            mean = summary.loc[("SAD", mode, "all"), "mean"]
            assert points.loc[episodes, f"{mode} return"] == mean
        facts = ResultsFolder(alone).results.rows["SAD"]
        own = found.results.rows[f"SAD, N_ep = {episodes}"]
        assert points.loc[episodes, "label accuracy"] == own.label_accuracy
        for name in ("label_accuracy", "label_transitions", "context_transitions"):
            assert getattr(own, name) == getattr(facts, name)
    one, four = (found.results.rows[f"SAD, N_ep = {episodes}"] for episodes in (1, 4))
    assert 2 * one.label_transitions < four.label_transitions
    assert points["offline return"].nunique() == 2
    assert one.context_transitions == four.context_transitions == 9


def test_settings_make_a_row_beside_the_methods(tmp_path: Path):
    folder = table_of(tmp_path, VARIANT.replace("DPT, ", ""))
    rows = {"SAD", "SAD, N_ep = 4"}
    table = pd.read_csv(folder / "summary.csv").set_index(["row", "mode", "subset"])["mean"]
    references = {"Bayes-optimal", "optimal", "random"}
    assert set(table.index.get_level_values(0)) == rows | references
    values = results.load(folder)
    assert set(values["row"]) == rows
    offline = values[values["mode"] == "offline"].groupby("row", observed=True)["value"].mean()
    for name in rows:
        assert offline[name] == pytest.approx(table[name, "offline", "all"])
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
    experiment = load_experiment(TINY, [grid({key: values}, "SAD")])
    summary = pd.DataFrame(
        {"row": row, "mode": "offline", "subset": "all", "metric": "return", "mean": number,
         "std": 0.1, "n_seeds": 2}
        for number, row in enumerate(experiment.by_row)
    )  # fmt: skip
    rows = [RowFacts(name, each.method, each.settings) for name, each in experiment.by_row.items()]
    table = sweep_table(rows, [key], summary)
    figures: list[Figure] = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, *_, **__: figures.append(figure))
    with pytest.raises(UserError):  # the stand-in writes no file
        draw_sweep(Path("sweep.png"), "Darkroom", table, [key])
    (axes,) = figures[0].axes
    figures[0].canvas.draw()
    (line,) = axes.lines[:1]
    assert list(line.get_xdata(orig=False)) == pytest.approx(places)
    assert list(line.get_ydata()) == list(range(len(values)))
    assert axes.get_xscale() == scale


def test_a_broken_dataset_does_not_hold_other_rows_back(tmp_path: Path):
    run = Run(load_experiment(TINY, [SWEEP, "seeds=[0]"]), tmp_path)
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
    arguments = [str(TINY), SWEEP, "seeds=[0]", *folders]
    assert main(["launch", *arguments, "--dry-run"]) == 0
    printed = capsys.readouterr().out
    assert printed.count("sad-hpc collect") == 1
    assert printed.count("--row 'SAD, N = 2, heads = 1' --seed 0") == 2
    run = Run(load_experiment(TINY, arguments[1:3]), tmp_path / "runs")
    run.prepare(["test"])
    assert main(["status", str(run.path)]) == 0
    assert capsys.readouterr().out.count("(SAD, N = 2, heads = 1)") == 3


@pytest.mark.parametrize("pair", ["[SAD, SAD]", "[SAD, BC]"])
def test_a_claim_is_about_two_rows(pair: str):
    with pytest.raises(ConfigError, match=r"claims: give two different rows .*rows: AD; DPT"):
        load_experiment(ROOT / "configs/darkroom.yaml", [f"claims=[{pair}]"])
    with pytest.raises(ConfigError, match="claims"):
        load_experiment(ROOT / "configs/darkroom.yaml", ["claims=[[SAD]]"])
    known = load_experiment(ROOT / "configs/darkroom.yaml", ["claims=[[SAD, DIT]]"])
    assert known.claims == [["SAD", "DIT"]]


def test_a_row_may_have_fewer_replicates():
    rows = "rows=[SAD, {method: DPT, replicates: 2}, {method: AD, replicates: 1}]"
    experiment = load_experiment(ROOT / "configs/darkroom.yaml", [rows, "seeds=[4, 2, 7]"])
    assert experiment.elements == [
        *(("SAD", 4), ("SAD", 2), ("SAD", 7), ("DPT", 4), ("DPT", 2), ("AD", 4))
    ]
    again = parse_experiment(experiment.model_dump(mode="json"), "again")
    assert again.elements == experiment.elements
    with pytest.raises(ConfigError, match="rows: DPT: replicates=2 exceeds the 1 seeds"):
        load_experiment(ROOT / "configs/darkroom.yaml", [rows, "seeds=[4]"])
