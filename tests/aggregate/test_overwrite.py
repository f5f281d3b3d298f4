"""Results of other settings are dropped or replaced only on request."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from sad_hpc.aggregate.overwrite import check_overwrite
from sad_hpc.aggregate.results_file import RESULTS, read_results, write_results
from sad_hpc.aggregate.stage import aggregate
from sad_hpc.errors import UserError
from sad_hpc.experiment.load import parse_experiment
from sad_hpc.launch.cluster import load_cluster
from sad_hpc.launch.pipeline import launch
from sad_hpc.storage.run import Run

from .synthetic import METHODS, fill, make_run


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of runs and results: three methods and seeds, and their tables."""
    folder = tmp_path_factory.mktemp("finished")
    run = make_run(folder)
    fill(run)
    aggregate(run, folder / "results")
    return folder


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Run:
    """The run in a copy of that folder, tmp_path."""
    shutil.copytree(finished, tmp_path, dirs_exist_ok=True)
    return make_run(tmp_path)


def changed(run: Run, **sections: object) -> Run:
    """The run of the same config with other values; a mapping replaces single keys of a section."""
    mapping = run.experiment.model_dump(mode="json")
    for key, value in sections.items():
        mapping[key] = {**mapping[key], **value} if isinstance(value, dict) else value
    return Run(parse_experiment(mapping, "test"), run.runs)


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


TRIAL = {"rows": ["SAD"], "seeds": [0], "pretrain": {"epochs": 1}, "evaluate": {"tasks": 10}}


@pytest.mark.parametrize("dry_run", [False, True])
def test_a_trial_launch_leaves_results_and_run_alone(
    run: Run, tmp_path: Path, dry_run: bool
) -> None:
    results, run_before = contents(tmp_path / "results"), contents(run.runs)
    with pytest.raises(UserError) as caught:
        launch(
            changed(run, **TRIAL),
            Path("x.yaml"),
            [],
            tmp_path / "results",
            load_cluster("local", []),
            dry_run=dry_run,
            wait=False,
        )
    message = str(caught.value)
    assert "\n" not in message
    assert "holds 9 results that the new tables would drop or replace" in message
    assert "without DPT, DPT*; without seeds 1, 2; evaluate.tasks: 200 -> 10" in message
    assert "pretrain.epochs: 3 -> 1" in message
    assert "name=NAME" in message and "--replace" in message
    assert contents(tmp_path / "results") == results
    assert contents(run.runs) == run_before


@pytest.mark.parametrize(
    ("change", "difference"),
    [
        ({"rows": ["SAD", "DPT"]}, "without DPT*"),
        ({"seeds": [0, 1]}, "without seeds 2"),
        ({"seeds": [3]}, "without seeds 0, 1, 2"),
        ({"data": {"trust_horizon": 9}}, "data.trust_horizon: 7 -> 9"),
        ({"task": {"horizon": 50}}, "task.horizon: 49 -> 50"),
        ({"evaluate": {"tasks": 50}}, "evaluate.tasks: 200 -> 50"),
        ({"model": {"heads": 1}}, "model.heads: 3 -> 1"),
    ],
)
def test_other_settings_are_refused(
    run: Run, tmp_path: Path, change: dict[str, object], difference: str
) -> None:
    other = changed(run, **change)
    with pytest.raises(UserError) as caught:
        check_overwrite(other.experiment, tmp_path / "results")
    assert difference in str(caught.value)


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"seeds": [2, 1, 0, 5]},
        {"rows": [*METHODS, {"name": "SAD, wide", "method": "SAD", "set": {"model.heads": 1}}]},
        {"pretrain": {"log_seconds": 5.0, "checkpoint_minutes": 1.0}},  # cannot change a result
        {"name": "other", "seeds": [7]},
    ],
)
def test_more_rows_and_seeds_are_allowed(
    run: Run, tmp_path: Path, change: dict[str, object]
) -> None:
    check_overwrite(changed(run, **change).experiment, tmp_path / "results")


def test_a_setting_of_a_method_that_the_tables_lack_is_free(run: Run, tmp_path: Path) -> None:
    methods = [*run.experiment.by_row, "DIT"]
    other = changed(run, rows=methods, dit={"weight": 7.0})
    check_overwrite(other.experiment, tmp_path / "results")


def test_aggregate_refuses_before_it_writes_and_replaces_on_request(
    run: Run, tmp_path: Path
) -> None:
    smaller = changed(run, rows=["SAD"], seeds=[0])
    before = contents(tmp_path / "results")
    with pytest.raises(UserError, match="holds 8 results that the new tables would drop"):
        aggregate(smaller, tmp_path / "results")
    assert contents(tmp_path / "results") == before
    folder = aggregate(smaller, tmp_path / "results", replace=True)
    assert folder == tmp_path / "results/synthetic"
    (only,) = read_results(folder / RESULTS).results
    assert (only.row, only.seed) == ("SAD", 0)


def test_tables_with_gaps_do_not_replace_complete_ones(run: Run, tmp_path: Path) -> None:
    elsewhere = make_run(tmp_path / "elsewhere")
    fill(elsewhere, skip={("SAD", 1)})
    with pytest.raises(UserError, match=r"holds 1 results .*without results of SAD seed 1"):
        aggregate(elsewhere, tmp_path / "results", allow_missing=True)


def test_a_gap_of_the_tables_is_no_result(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "results/synthetic" / RESULTS
    write_results(path, replace(read_results(path), missing=[("SAD", 1)]))
    without = [element for element in run.experiment.elements if element != ("SAD", 1)]
    check_overwrite(run.experiment, tmp_path / "results", without)
    check_overwrite(run.experiment, tmp_path / "results")


def _unknown_key(path: Path) -> None:
    found = read_results(path)
    write_results(path, replace(found, config={**found.config, "of_another_version": 1}))


def _torn(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


@pytest.mark.parametrize("damage", [_unknown_key, _torn])
def test_results_of_a_config_that_cannot_be_read_are_kept(
    run: Run, tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    damage(tmp_path / "results/synthetic" / RESULTS)
    check_overwrite(run.experiment, tmp_path / "results")  # its provenance says that it is the same
    fewer = changed(run, seeds=[0]).experiment
    with pytest.raises(UserError, match=r"whose config cannot be read .*--replace"):
        check_overwrite(fewer, tmp_path / "results")
