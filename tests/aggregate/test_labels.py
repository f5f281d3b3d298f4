import shutil
from pathlib import Path

import pytest

from sad_hpc.aggregate.labels import label_notes, label_table
from sad_hpc.aggregate.results_file import RowFacts
from sad_hpc.collect.stage import collect
from sad_hpc.experiment.load import load_experiment
from sad_hpc.storage.run import Run
from tests.conftest import TINY


def test_all_labels_of_the_oracle_are_right(tiny_run: Run):
    experiment = load_experiment(TINY, ["rows=[SAD,DPT,DPT*]"])
    table = label_table(Run(experiment, tiny_run.runs)).set_index("row")
    assert table["label_accuracy"]["DPT*"] == 1 > table["label_accuracy"]["SAD"]


def test_a_task_pays_for_all_of_its_labels(tiny_run: Run, tmp_path: Path):
    more = Run(load_experiment(TINY, ["data.queries_per_task=4"]), tmp_path)
    collect(more)
    one, four = (label_table(run).set_index("row").loc["SAD"] for run in (tiny_run, more))
    assert four["label_transitions"] == pytest.approx(4 * one["label_transitions"], rel=0.1)
    assert four["context_transitions"] == one["context_transitions"]


def test_a_damaged_shard_is_noted(tiny_run: Run, tmp_path: Path):
    run = Run(tiny_run.experiment, tmp_path)
    shutil.copytree(tiny_run.data().path, run.data().path)
    assert list(label_table(run)["row"]) == ["SAD", "DPT"]
    shard = run.data().path / "train/shard-00003.h5"
    shard.write_bytes(shard.read_bytes()[:-1])
    assert label_table(run).empty
    rows = [RowFacts("SAD", "SAD", {}), RowFacts("DPT", "DPT", {}, 0.3, 49.0, 0.0)]
    (note,) = label_notes(rows)
    assert note.startswith("No label accuracy of SAD: the dataset is missing or damaged")
    assert label_notes(rows[1:]) == []
