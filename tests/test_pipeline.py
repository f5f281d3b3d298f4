"""The whole pipeline on one machine: MPI, DeepSpeed, evaluation and tables through submitit."""

import csv
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import TINY
from tests.patience import HUNG

BIN = Path(sys.executable).parent
ONE = ("rows=[SAD]", "seeds=[0]")


def launch(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [BIN / "sad-hpc", "launch", TINY, "--cluster", "local", *arguments]
    return subprocess.run(
        [*map(str, command), "--runs", str(folder / "runs"), "--results", str(folder / "results")],
        capture_output=True,
        text=True,
        timeout=HUNG,
        cwd=folder,
        umask=0,
    )


def _started(done: subprocess.CompletedProcess[str]) -> str:
    lines = (done.stdout + done.stderr).splitlines()
    return "\n".join(line for line in lines if ": started" in line)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    folder = tmp_path_factory.mktemp("pipeline")
    done = launch(folder, *ONE, "cluster.pretrain.ranks=2")
    assert done.returncode == 0, done.stdout + done.stderr
    return folder, done.stdout


def test_it_ends_with_the_table(finished: tuple[Path, str]):
    _, output = finished
    assert "SAD" in output and "random" in output and "offline return" in output


def test_nobody_else_may_write_what_it_wrote(finished: tuple[Path, str]):
    folder, _ = finished
    paths = [folder / "runs", folder / "results", *folder.glob("r*/**/*")]
    assert len(paths) > 50
    # Under the umask 0 of this launch everything would be open, were it left alone.
    assert not [path for path in paths if path.lstat().st_mode & 0o022 and not path.is_symlink()]


def test_the_summary_has_every_method_mode_and_subset(finished: tuple[Path, str]):
    folder, _ = finished
    with (folder / "results/tiny/summary.csv").open() as handle:
        rows = list(csv.DictReader(handle))
    assert list(rows[0]) == [
        "task_family", "environment", "row", "mode", "metric", "subset", "n_seeds", "mean", "std",
        "ci_low", "ci_high", "iqm", "iqm_low", "iqm_high", "bayes_optimal",
        "exact_learner",
    ]  # fmt: skip
    found = {(row["row"], row["mode"], row["subset"]) for row in rows}
    for method in ("SAD", "optimal", "random"):
        for mode in ("offline", "online"):
            assert {(method, mode, "all"), (method, mode, "reward_seen")} <= found


def test_two_ranks_collected_and_trained(finished: tuple[Path, str]):
    folder, _ = finished
    run = folder / "runs/tiny"
    markers = [*run.glob("data/*/done.json"), *run.glob("checkpoints/*-seed0-*/done.json")]
    assert len(markers) == 2
    assert all(json.loads(marker.read_text())["ranks"] == 2 for marker in markers)


def test_results_name_no_folder_of_this_machine(finished: tuple[Path, str]):
    folder, _ = finished
    texts = [p.read_text() for p in (folder / "results/tiny").iterdir() if p.suffix != ".h5"
             and p.suffix != ".png" and p.is_file()]  # fmt: skip
    assert len(texts) == 4 and "launch" in "".join(texts)
    assert not [text for text in texts if str(folder) in text]


@pytest.mark.slow
def test_launching_again_skips_what_is_complete_and_adds_what_is_new(finished: tuple[Path, str]):
    folder, _ = finished
    before = {path: path.stat().st_mtime_ns for path in (folder / "runs/tiny").rglob("weights.pt")}
    again = launch(folder, *ONE, "--wait")
    assert again.returncode == 0
    assert "started" not in again.stdout + again.stderr
    more = launch(folder, "seeds=[0, 1]", "rows=[SAD]")
    assert more.returncode == 0, more.stdout + more.stderr
    assert "sad-seed1" in _started(more) and "sad-seed0" not in _started(more)
    first_table = launch(folder, *ONE, "--replace")
    assert first_table.returncode == 0
    assert "SAD" in first_table.stdout and "pretrain" not in _started(first_table)
    for path, time in before.items():
        assert path.stat().st_mtime_ns == time


def test_status_shows_every_stage_as_complete(finished: tuple[Path, str]):
    folder, _ = finished
    done = subprocess.run(
        [BIN / "sad-hpc", "status", folder / "runs/tiny"], capture_output=True, text=True
    )
    assert done.returncode == 0
    for stage in ("collect", "pretrain", "evaluate", "aggregate"):
        assert f"\n{stage} " in "\n" + done.stdout
    assert "failed" not in done.stdout
