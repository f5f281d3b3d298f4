"""Results folders are replaced as a whole, and those of other settings only on request."""

import os
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from sad_hpc.aggregate import stage
from sad_hpc.aggregate.results_file import RESULTS, read_results, write_results
from sad_hpc.aggregate.results_folder import check_overwrite, replacing
from sad_hpc.aggregate.stage import aggregate
from sad_hpc.errors import UserError
from sad_hpc.experiment.load import parse_experiment
from sad_hpc.launch.cluster import load_cluster
from sad_hpc.launch.pipeline import launch
from sad_hpc.storage.run import Run

from .synthetic import METHODS, fill, make_run


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
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {path.relative_to(folder): path.read_bytes() for path in files}


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
    folder = aggregate(elsewhere, tmp_path / "results", allow_missing=True)
    assert len(read_results(folder / RESULTS).seeds) == len(run.experiment.elements)


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


PICTURE = {"a": "sweep.png", "b": "diagnosis.png", "c": "training.png"}
"""A file that only one of the replacements makes."""
CHANGES = {"os.mkdir", "os.rename", "os.remove", "os.rmdir"}


def exchange(folder: Path, text: str) -> None:
    with replacing(folder) as new:
        (new / "summary.csv").write_text(text)
        (new / PICTURE[text]).write_text(text)


def killed_at(change: int, folder: Path) -> bool:
    """Kill a process that replaces `folder` at its n-th change; return whether it had so many."""
    child = os.fork()
    if child == 0:
        left = [change]

        def count(event: str, _: object) -> None:
            left[0] -= event in CHANGES
            if left[0] == 0:
                os._exit(9)

        try:
            sys.addaudithook(count)
            exchange(folder, "b")
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9


def test_a_killed_process_leaves_a_whole_folder_and_the_users_files(tmp_path: Path):
    own = {Path("notes.txt"): b"mine", Path(".hidden/x"): b"mine"}
    whole = {
        text: dict.fromkeys([Path("summary.csv"), Path(picture)], text.encode())
        for text, picture in PICTURE.items()
    }
    change, was_killed = 0, True
    while was_killed:
        change += 1
        folder = tmp_path / str(change) / "tiny"
        exchange(folder, "a")
        (folder / ".hidden").mkdir()
        for name, text in own.items():
            (folder / name).write_bytes(text)
        was_killed = killed_at(change, folder)
        if folder.exists():
            tables = {name: b for name, b in contents(folder).items() if name not in own}
            assert tables in (whole["a"], whole["b"])
        exchange(folder, "c")
        assert contents(folder) == whole["c"] | own
        assert not [path for path in (folder.parent / ".tiny").iterdir() if path.is_dir()]
    assert change > 8


def test_a_block_that_fails_changes_nothing(tmp_path: Path):
    folder = tmp_path / "tiny"
    exchange(folder, "a")
    before = contents(folder)
    with pytest.raises(KeyError), replacing(folder) as new:
        (new / "summary.csv").write_text("b")
        raise KeyError
    assert contents(folder) == before


def test_what_a_link_leads_to_is_replaced(tmp_path: Path):
    (tmp_path / "large/disk").mkdir(parents=True, mode=0o700)
    (tmp_path / "tiny").symlink_to("large/disk")
    exchange(tmp_path / "tiny", "a")
    assert (tmp_path / "tiny").is_symlink() and (tmp_path / "large/disk/summary.csv").is_file()
    assert (tmp_path / "large/disk").stat().st_mode & 0o777 == 0o700


@pytest.mark.slow
def test_two_runs_of_one_name_never_mix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    runs = [make_run(tmp_path / side, rows=["SAD"], seeds=[n]) for n, side in enumerate("ab")]
    for run in runs:
        fill(run)
    results = tmp_path / "results"
    write = stage.write_results

    def meanwhile(*arguments: object) -> None:
        write(*arguments)
        with pytest.raises(UserError, match=r"results/\.synthetic is in use by process"):
            aggregate(runs[1], results)

    monkeypatch.setattr(stage, "write_results", meanwhile)
    folder = aggregate(runs[0], results)
    monkeypatch.undo()
    assert [one.seed for one in read_results(folder / RESULTS).results] == [0]
    folder = aggregate(runs[1], results, replace=True)
    assert [one.seed for one in read_results(folder / RESULTS).results] == [1]


def test_a_launch_makes_what_was_deleted_again(tmp_path: Path, capsys):
    run = make_run(tmp_path, rows=["SAD"], seeds=[0])
    fill(run)
    for folder in (run.data(), run.checkpoint("SAD", 0), run.evaluation("SAD", 0)):
        folder.prepare({})
        folder.complete()
    folder = aggregate(run, tmp_path / "results")
    (folder / "notes.txt").write_text("mine")
    names = set(contents(folder))
    local = load_cluster("local", [])

    def submitted() -> bool:
        launch(run, Path("x.yaml"), [], tmp_path / "results", local, dry_run=True, wait=False)
        return "aggregate.sh" in capsys.readouterr().out

    assert not submitted()
    shutil.copytree(folder, tmp_path / "copy")  # as of a checkout: other times, the same sizes
    shutil.rmtree(folder)
    assert submitted()
    shutil.copytree(tmp_path / "copy", folder)
    (folder / "notes.txt").unlink()
    assert not submitted()
    for name in names - {Path("notes.txt"), Path("provenance.json")}:
        content = (folder / name).read_bytes()
        for damage in (Path.unlink, lambda path: path.write_bytes(b"")):
            damage(folder / name)
            assert submitted(), name
        (folder / name).write_bytes(content)
