"""Results that outlive their run folders."""

import shutil
from pathlib import Path

import pytest

from sad_hpc.aggregate.results_file import RESULTS, read_results
from sad_hpc.aggregate.results_folder import ResultsFolder
from sad_hpc.aggregate.stage import aggregate
from sad_hpc.errors import UserError
from sad_hpc.launch.cluster import load_cluster
from sad_hpc.launch.graph import graph
from sad_hpc.launch.job import StageJob
from sad_hpc.launch.pipeline import launch
from sad_hpc.storage.json_files import write_json

from .synthetic import fill, make_run


@pytest.fixture
def first(tmp_path, unrendered):
    """Tables of seed 0, and a run of seeds 0 and 1 without the evaluations of seed 0."""
    run = make_run(tmp_path, seeds=[0])
    fill(run)
    for element in run.experiment.elements:
        write_json(run.evaluation(*element).path / "provenance.json", {"commit": "first0commit"})
    aggregate(run, tmp_path / "results")
    shutil.rmtree(run.path)
    return make_run(tmp_path, seeds=[0, 1])


def test_tables_of_two_runs_are_those_of_one(first, tmp_path):
    fill(first, skip={(row, 0) for row in first.experiment.by_row})
    added = aggregate(first, tmp_path / "results")
    whole = make_run(tmp_path / "whole", seeds=[0, 1])
    fill(whole)
    at_once = aggregate(whole, tmp_path / "whole/results")
    summaries = [(folder / "summary.csv").read_bytes() for folder in (added, at_once)]
    assert summaries[0] == summaries[1]
    assert len(read_results(added / RESULTS).seeds) == 6
    stages = ResultsFolder(added).provenance["stages"]
    key = first.evaluation("SAD", 0).key
    assert stages[key]["commit"] == "first0commit"


def test_the_job_of_the_tables_needs_no_kept_result(first, tmp_path):
    kept = {(row, 0) for row in first.experiment.by_row}
    fill(first, skip=kept)
    *before, tables = graph(first, kept)
    for step in before:
        if step.stage == "evaluate":
            step.folder.complete(outputs=["result.h5"])
    StageJob.of(first, tables, tmp_path / "results")()
    assert len(read_results(tmp_path / "results/synthetic" / RESULTS).seeds) == 6


def test_results_of_other_settings_are_not_kept(first, tmp_path):
    other = make_run(tmp_path, seeds=[0, 1], evaluate={"tasks": 7})
    fill(other, skip={("SAD", 0)})
    with pytest.raises(UserError, match="no result of SAD seed 0 "):
        aggregate(other, tmp_path / "results", replace=True)


def test_a_damaged_results_file_keeps_nothing(first, tmp_path):
    (tmp_path / "results/synthetic" / RESULTS).write_bytes(b"no HDF5")
    fill(first, skip={("SAD", 0)})
    with pytest.raises(UserError, match="no result of SAD seed 0 "):
        aggregate(first, tmp_path / "results", replace=True)


def test_a_launch_works_on_the_missing_seeds_alone(first, tmp_path, capsys):
    local = load_cluster("local", [])
    launch(first, Path("x.yaml"), [], tmp_path / "results", local, dry_run=True, wait=False)
    printed = capsys.readouterr().out
    assert "3 of 6 results are kept" in printed
    scripts = [line for line in printed.splitlines() if line.startswith("# ----")]
    names = [Path(line.split()[-1]).stem for line in scripts]
    trained = [f"pretrain-{slug}-seed1" for slug in ("sad", "dpt", "dpt_star")]
    assert names == ["collect", *trained, "evaluate", "aggregate"]
    fill(first, skip={(row, 0) for row in first.experiment.by_row})
    aggregate(first, tmp_path / "results")
    shutil.rmtree(first.path)
    launch(first, Path("x.yaml"), [], tmp_path / "results", local, dry_run=True, wait=False)
    assert "6 of 6 results are kept" in capsys.readouterr().out
