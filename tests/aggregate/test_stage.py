"""The stage aggregate: its files, gaps, wrong inputs, and the labels of its datasets."""

import shutil
from pathlib import Path

import h5py
import numpy as np
import pandas as pd
import pytest
from matplotlib.image import imread

from sad_hpc.aggregate.canvas import COLORS, REFERENCE_STYLES
from sad_hpc.aggregate.readme import headline_table, label_notes, render
from sad_hpc.aggregate.results_file import RESULTS, RowFacts, read_results
from sad_hpc.aggregate.results_folder import ResultsFolder
from sad_hpc.aggregate.stage import aggregate, row_facts
from sad_hpc.collect.stage import collect
from sad_hpc.errors import UserError
from sad_hpc.evaluate.bandit_policies import POLICIES
from sad_hpc.experiment.load import load_experiment
from sad_hpc.experiment.methods import METHODS
from sad_hpc.parser import make_parser
from sad_hpc.storage.json_files import read_json, write_json
from sad_hpc.storage.run import Run
from tests.conftest import TINY

from .synthetic import METHODS as SYNTHETIC
from .synthetic import fill, level, make_run, write_result


@pytest.fixture
def run(tmp_path):
    run = make_run(tmp_path)
    fill(run)
    return run


@pytest.fixture
def small(tmp_path):
    run = make_run(tmp_path, rows=["DPT", "SAD"], seeds=[0])
    fill(run)
    return run


@pytest.fixture
def folder(finished):
    return finished / "results/synthetic"


def test_results_folder_is_complete(folder, finished):
    run = make_run(finished)
    assert run.aggregate().done["elements"] == 9
    names = {path.name for path in folder.iterdir()}
    pictures = {f"{name}.png" for name in ("offline", "online", "training", "diagnosis")}
    tables = {"results.h5", "summary.csv", "config.yaml", "provenance.json", "README.md"}
    assert names == pictures | tables
    readme = (folder / "README.md").read_text()
    for name in names - {"README.md"}:
        assert f"]({name})" in readme
    assert run.experiment.data_signature() in readme
    assert "INCOMPLETE" not in readme
    assert str(finished) not in readme + (folder / "provenance.json").read_text()


def test_the_page_names_every_commit_that_made_a_part(small, tmp_path, unrendered):
    path = small.checkpoint("SAD", 0).path / "provenance.json"
    maker = {"commit": "later0commit", "argv": [f"{tmp_path}/sad-hpc"]}
    write_json(path, {"commit": "first0commit", "argv": [], "resumed": [maker]})
    folder = aggregate(small, tmp_path / "results")
    readme = (folder / "README.md").read_text()
    assert "first0commit; later0commit" in readme
    assert str(tmp_path) not in (folder / "provenance.json").read_text()


def test_every_reference_policy_has_a_style_of_its_own():
    styles = [
        REFERENCE_STYLES[name]
        for name in {"Bayes-optimal", "Bayes-optimal, history", "optimal", "random", *POLICIES}
    ]
    assert len(set(styles)) == len(styles)


def test_aggregating_twice_gives_the_same_tables(small, tmp_path, unrendered):
    folder = aggregate(small, tmp_path / "results")
    tables = {path: path.read_bytes() for path in folder.glob("*.csv")}
    aggregate(small, tmp_path / "results")
    assert tables == {path: path.read_bytes() for path in folder.glob("*.csv")}


def test_all_pages_follow_from_the_results_file(folder, tmp_path):
    for name in ("results.h5", "config.yaml", "provenance.json"):
        shutil.copy(folder / name, tmp_path)
    render(ResultsFolder(tmp_path), folder)
    pages = ({path.name: path.read_bytes() for path in f.iterdir()} for f in (tmp_path, folder))
    assert next(pages) == next(pages)


def test_stored_config_launches_the_same_experiment(folder, finished):
    run = make_run(finished)
    assert load_experiment(folder / "config.yaml") == run.experiment
    assert read_results(folder / RESULTS).config == run.experiment.model_dump(mode="json")


@pytest.mark.parametrize("results", ["results", "results/ablations"])
def test_the_commands_shown_make_the_same_folder_again(
    small, tmp_path, monkeypatch, unrendered, results
):
    monkeypatch.chdir(tmp_path)
    folder = aggregate(small, tmp_path / results)
    lines = (folder / "README.md").read_text().splitlines()
    commands = [line.split("#")[0].split() for line in lines if line.startswith("sad-hpc")]
    assert [words[1] for words in commands] == ["launch", "aggregate"]
    for words in commands:
        options = make_parser().parse_args(words[1:])
        assert load_experiment(options.config) == small.experiment
        assert options.results / small.experiment.name == folder.relative_to(tmp_path)


def test_the_command_shown_trains_on_as_many_ranks(small, tmp_path, unrendered):
    for element in small.experiment.elements:
        folder = small.checkpoint(*element)
        folder.prepare({})
        folder.complete(ranks=2)
    page = (aggregate(small, tmp_path / "results") / "README.md").read_text()
    assert "config.yaml cluster.pretrain.ranks=2 " in page and "processors), 2 ranks |" in page
    folder.complete(ranks=1)  # of the last model alone: no command makes these tables again
    page = (aggregate(small, tmp_path / "results") / "README.md").read_text()
    assert "cluster.pretrain.ranks" not in page and "processors), 1 rank |" in page


def test_pages_name_the_gpu_and_the_precision_of_a_training(small, tmp_path, unrendered):
    folder = small.checkpoint(*small.experiment.elements[0])
    folder.prepare({})
    record = read_json(folder.path / "provenance.json")
    write_json(folder.path / "provenance.json", record | {"gpu": "NVIDIA X"})
    folder.complete(ranks=1, precision="bf16")
    page = (aggregate(small, tmp_path / "results") / "README.md").read_text()
    assert "processors, NVIDIA X), 1 rank, bf16" in page


def test_missing_elements_are_an_error_that_names_them(tmp_path):
    run = make_run(tmp_path)
    fill(run, skip={("SAD", 1), ("DPT*", 2)})
    with pytest.raises(UserError, match=r"SAD seed 1, DPT\* seed 2 \(2 of 9\)") as caught:
        aggregate(run, tmp_path / "results")
    assert "sad-hpc launch" in str(caught.value)
    assert "sad-hpc evaluate" in str(caught.value)
    assert not (tmp_path / "results").exists()


def test_allowed_gaps_are_named_everywhere_and_never_averaged(tmp_path, unrendered):
    run = make_run(tmp_path)
    fill(run, skip={("SAD", 1)})
    folder = aggregate(run, tmp_path / "results", allow_missing=True)
    table = pd.read_csv(folder / "summary.csv")
    row = table[(table["row"] == "SAD") & (table["mode"] == "online")].iloc[0]
    assert row["n_seeds"] == 2
    assert row["mean"] == pytest.approx((level("SAD", 0) + level("SAD", 2)) / 2)
    pages = [path.read_text() for path in folder.iterdir() if path.suffix == ".md"]
    for text in [*pages, headline_table(folder)]:
        assert "INCOMPLETE: no result yet of SAD seed 1" in text
    assert run.aggregate().done is None
    fill(run)
    aggregate(run, tmp_path / "results")
    assert run.aggregate().done
    assert "INCOMPLETE" not in headline_table(folder)


def test_nothing_at_all_is_an_error_even_if_gaps_are_allowed(tmp_path):
    with pytest.raises(UserError, match="no result"):
        aggregate(make_run(tmp_path), tmp_path / "results", allow_missing=True)


def test_result_in_the_wrong_folder_is_refused(run, tmp_path):
    with h5py.File(run.evaluation("SAD", 0).path / "result.h5", "a") as file:
        file.attrs["method"] = "DPT"
    with pytest.raises(UserError, match="belongs to DPT seed 0, not to SAD seed 0"):
        aggregate(run, tmp_path / "results")


def test_result_of_another_training_is_refused(run, tmp_path):
    signature = run.experiment.evaluate_signature("SAD", 0)
    with h5py.File(run.evaluation("SAD", 0).path / "result.h5", "a") as file:
        file.attrs["signature"] = "0123456789ab"
    with pytest.raises(UserError, match=f"to signature 0123456789ab, not to signature {signature}"):
        aggregate(run, tmp_path / "results")
    assert not (tmp_path / "results").exists()


def test_headline_table_has_a_line_a_method(folder):
    text = headline_table(folder).split("\n\n")[0]  # verdicts follow
    (sad,) = [line for line in text.splitlines() if line.startswith("SAD")]
    assert " ".join(sad.split()) == "SAD 25.00 ± 1.00 27.00 ± 1.00 25.00 ± 1.00 3"
    widths = {len(line) for line in text.splitlines()[1:]}
    assert len(widths) == 1


def test_headline_table_of_no_results_folder(tmp_path):
    with pytest.raises(UserError, match="sad-hpc aggregate"):
        headline_table(tmp_path)


def test_missing_metrics_leave_out_the_figure_and_say_so(small, tmp_path, unrendered):
    assert (aggregate(small, tmp_path / "results") / "training.png").exists()
    for element in small.experiment.elements:
        (small.checkpoint(*element).path / "metrics.jsonl").unlink()
    folder = aggregate(small, tmp_path / "results")
    assert not (folder / "training.png").exists()
    assert "No training metrics of DPT seed 0" in (folder / "README.md").read_text()


def test_every_method_has_a_color_of_its_own():
    assert len(set(COLORS.values())) == len(COLORS)
    assert set(METHODS) <= set(COLORS)


def _share_of_color(image, color):
    wanted = np.array([int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    return (np.abs(image[..., :3] - wanted).max(axis=-1) < 0.02).mean()


@pytest.mark.parametrize(
    ("name", "n_panels"),
    [("offline.png", 2), ("online.png", 1), ("training.png", 2), ("diagnosis.png", 2)],
)
def test_every_panel_shows_every_method_in_its_color(folder, name, n_panels):
    image = imread(folder / name)
    assert min(image.shape[:2]) > 300
    above_legend = image[: int(0.85 * len(image))]
    for panel in np.array_split(above_legend, n_panels, axis=1):
        for method in SYNTHETIC:
            assert _share_of_color(panel, COLORS[method]) > 2e-4, method


def test_bandit_results_are_drawn_and_compared(tmp_path):
    run = make_run(tmp_path, ["SAD", "DPT"], [0, 1])
    lengths = np.arange(1, 51)
    for method, seed in run.experiment.elements:
        scale = {"SAD": 0.1, "DPT": 0.4}[method] * np.ones((20, 1))
        offline = {"values": scale + 1 / lengths, "metric": "suboptimality"}
        online = {"values": scale * lengths, "metric": "regret", "axis": "pull"}
        offline["axis"] = "context length"
        write_result(run, method, seed, offline, online, family="gaussian_bandit")
    folder = aggregate(run, tmp_path / "results")
    readme = (folder / "README.md").read_text()
    assert "300.0 % (paper 942.5 %)" in readme
    assert readme.startswith("# Gaussian Bandits: synthetic")
    assert "0.1200 ± 0.0000" in headline_table(folder)


@pytest.mark.parametrize("name", ["metrics.jsonl", "provenance.json", "config.json"])
def test_numbers_that_were_edited_reach_no_table(run, tmp_path, name):
    model = run.checkpoint("DPT", 1)
    model.prepare({})
    model.complete(records=["metrics.jsonl"])
    path = model.path / name
    path.write_text(path.read_text().replace("1", "2", 1) + " ")
    with pytest.raises(UserError, match=f"{name} was changed after its stage was complete"):
        aggregate(run, tmp_path / "results")
    assert not (tmp_path / "results/synthetic").exists()


def test_missing_labels_are_noted(folder):
    readme = (folder / "README.md").read_text()
    assert r"No label accuracy of DPT, DPT\*, SAD: the dataset is missing or damaged" in readme


def test_all_labels_of_the_oracle_are_right(tiny_run: Run):
    experiment = load_experiment(TINY, ["rows=[SAD,DPT,DPT*]"])
    rows = row_facts(Run(experiment, tiny_run.runs))
    assert rows["DPT*"].label_accuracy == 1 > rows["SAD"].label_accuracy


def test_a_task_pays_for_all_of_its_labels(tiny_run: Run, tmp_path: Path):
    more = Run(load_experiment(TINY, ["data.queries_per_task=4"]), tmp_path)
    collect(more)
    one, four = (row_facts(run)["SAD"] for run in (tiny_run, more))
    assert four.label_transitions == pytest.approx(4 * one.label_transitions, rel=0.1)
    assert four.context_transitions == one.context_transitions


def test_a_damaged_shard_is_noted(tiny_run: Run, tmp_path: Path):
    run = Run(tiny_run.experiment, tmp_path)
    shutil.copytree(tiny_run.data().path, run.data().path)
    assert label_notes(row_facts(run).values()) == []
    shard = run.data().path / "train/shard-00003.h5"
    shard.write_bytes(shard.read_bytes()[:-1])
    rows = row_facts(run)
    assert np.isnan([row.label_accuracy for row in rows.values()]).all()
    (note,) = label_notes([rows["SAD"], RowFacts("DPT", "DPT", {}, 0.3, 49.0, 0.0)])
    assert note.startswith("No label accuracy of SAD: the dataset is missing or damaged")
