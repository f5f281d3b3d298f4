"""Replacement of results folders: complete, from one run, also with concurrent processes."""

import os
import shutil
import sys
from pathlib import Path

import pytest

from sad_hpc.aggregate import stage
from sad_hpc.aggregate.replacement import replacing
from sad_hpc.aggregate.results_file import RESULTS, read_results
from sad_hpc.aggregate.stage import aggregate
from sad_hpc.errors import UserError
from sad_hpc.launch.cluster import load_cluster
from sad_hpc.launch.pipeline import launch

from .synthetic import fill, make_run

MADE = {"summary.csv", "evaluations"}
CHANGES = {"os.mkdir", "os.rename", "os.remove", "os.rmdir"}


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def replace(folder: Path, text: str) -> None:
    with replacing(folder, MADE) as new:
        (new / "summary.csv").write_text(text)
        (new / "evaluations").mkdir()
        (new / f"evaluations/{text}.h5").write_text(text)


def killed_at(change: int, folder: Path) -> bool:
    """Whether a process that replaces `folder` had so many changes of folders to be killed at."""
    child = os.fork()
    if child == 0:
        left = [change]

        def count(event: str, _: object) -> None:
            left[0] -= event in CHANGES
            if left[0] == 0:
                os._exit(9)

        try:
            sys.addaudithook(count)
            replace(folder, "b")
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9


def test_a_killed_process_leaves_a_whole_folder_and_the_users_files(tmp_path: Path):
    own = {"notes.txt": b"mine", ".hidden/x": b"mine"}
    whole = {
        text: dict.fromkeys(["summary.csv", f"evaluations/{text}.h5"], text.encode())
        for text in "abc"
    }
    change, was_killed = 0, True
    while was_killed:
        change += 1
        folder = tmp_path / str(change) / "tiny"
        replace(folder, "a")
        (folder / ".hidden").mkdir()
        for name, text in own.items():
            (folder / name).write_bytes(text)
        was_killed = killed_at(change, folder)
        if folder.exists():
            tables = {name: b for name, b in contents(folder).items() if name not in own}
            assert tables in (whole["a"], whole["b"])
        replace(folder, "c")
        assert contents(folder) == whole["c"] | own
        assert not [path for path in (folder.parent / ".tiny").iterdir() if path.is_dir()]
    assert change > 8


def test_a_block_that_fails_changes_nothing(tmp_path: Path):
    folder = tmp_path / "tiny"
    replace(folder, "a")
    before = contents(folder)
    with pytest.raises(KeyError), replacing(folder, MADE) as new:
        (new / "summary.csv").write_text("b")
        raise KeyError
    assert contents(folder) == before


def test_what_a_link_leads_to_is_replaced(tmp_path: Path):
    (tmp_path / "large/disk").mkdir(parents=True, mode=0o700)
    (tmp_path / "tiny").symlink_to("large/disk")
    replace(tmp_path / "tiny", "a")
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
    for name in names - {"notes.txt", "provenance.json"}:
        content = (folder / name).read_bytes()
        for damage in (Path.unlink, lambda path: path.write_bytes(b"")):
            damage(folder / name)
            assert submitted(), name
        (folder / name).write_bytes(content)
