import errno
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import psutil
import pytest

from sad_hpc.collect.stage import collect
from sad_hpc.dataset.schema import Manifest
from sad_hpc.errors import DatasetError
from sad_hpc.experiment.load import load_experiment
from sad_hpc.storage.run import Run
from tests.conftest import TINY
from tests.patience import HUNG, SOON

BIN = Path(sys.executable).parent


def mpi_collect(ranks: int, runs: Path, *overrides: str, **environment: str):
    command = [BIN / "mpiexec", "-n", str(ranks), BIN / "sad-hpc", "collect", TINY]
    return subprocess.run(
        [*map(str, command), "--runs", str(runs), *overrides],
        capture_output=True,
        text=True,
        timeout=HUNG,
        env=os.environ | environment,
    )


def files(run: Run) -> dict[str, bytes]:
    folder = run.data().path
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.name.startswith("shard-") or path.name == "manifest.json"
    }


@pytest.fixture(scope="module")
def on_two_ranks(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The folder of runs of a collection by two ranks, and its log."""
    folder = tmp_path_factory.mktemp("two ranks")
    done = mpi_collect(2, folder)
    assert done.returncode == 0, done.stderr
    return folder, done.stderr


def test_two_ranks_make_the_same_files(tiny_run: Run, on_two_ranks: tuple[Path, str]):
    assert files(Run(tiny_run.experiment, on_two_ranks[0])) == files(tiny_run)


@pytest.mark.parametrize(("ranks", "schedule"), [(1, "dynamic"), (3, "dynamic"), (3, "static")])
def test_any_number_of_ranks_makes_the_same_files(
    tiny_run: Run, tmp_path: Path, ranks: int, schedule: str
):
    done = mpi_collect(ranks, tmp_path, f"data.schedule={schedule}")
    assert done.returncode == 0, done.stderr
    assert files(Run(tiny_run.experiment, tmp_path)) == files(tiny_run)


def test_any_number_of_ranks_makes_the_same_files_of_more_queries(tmp_path: Path):
    more = "data.queries_per_task=3"
    alone = Run(load_experiment(TINY, [more]), tmp_path / "alone")
    collect(alone)
    done = mpi_collect(3, tmp_path / "together", more)
    assert done.returncode == 0, done.stderr
    assert files(Run(alone.experiment, tmp_path / "together")) == files(alone)


def test_what_time_was_spent_on_is_reported(tiny_run: Run, on_two_ranks: tuple[Path, str]):
    folder, log = on_two_ranks
    assert "M transitions/s" in log and "kernels" in log and "I/O" in log
    run = Run(tiny_run.experiment, folder)
    marker = run.data().done
    assert marker is not None
    for split in ("train", "test"):
        counts = marker["throughput"][split]
        assert counts["ranks"] == 2
        assert sum(counts["shares"].values()) == pytest.approx(1, abs=1e-6)
        manifest = Manifest.load(run.data().path / split)
        made = counts["transitions_per_second"] * counts["seconds"]
        assert made == pytest.approx(sum(manifest.steps.values()))


def test_progress_in_a_log_is_plain_lines(on_two_ranks: tuple[Path, str]):
    _, log = on_two_ranks
    assert "6/6 blocks" in log
    assert "\r" not in log and "\x1b" not in log


def test_collecting_again_changes_nothing(tiny_run: Run):
    before = {p: p.stat().st_mtime_ns for p in tiny_run.data().path.rglob("*")}
    collect(tiny_run)
    assert {p: p.stat().st_mtime_ns for p in tiny_run.data().path.rglob("*")} == before


def test_a_manifest_that_cannot_be_read_is_no_missing_one(
    tiny_run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Or a disk that fails for a moment would cost all blocks."""
    run = Run(tiny_run.experiment, tmp_path)
    collect(run)
    (run.data().path / "done.json").unlink()
    error = OSError(errno.EIO, "Input/output error")
    monkeypatch.setattr("sad_hpc.dataset.schema.parse_json", mock.Mock(side_effect=error))
    with pytest.raises(DatasetError, match=r"cannot read .*manifest\.json: Input/output error"):
        collect(run)


def test_an_interrupted_collection_redoes_only_what_is_missing_or_damaged(
    tiny_run: Run, tmp_path: Path
):
    run = Run(tiny_run.experiment, tmp_path)
    collect(run)
    folder = run.data().path
    flipped = folder / "test/shard-00000.h5"
    flipped.write_bytes(flipped.read_bytes()[:-1] + b"x")
    (folder / "train/shard-00001.h5").unlink()
    os.truncate(folder / "train/shard-00002.h5", 10)
    manifest = Manifest.load(folder / "train")
    del manifest.shards[4]
    manifest.save(folder / "train")
    untouched = folder / "train/shard-00000.h5"
    before = untouched.stat().st_mtime_ns
    assert run.data().done is None
    collect(run)
    assert run.data().done is not None
    assert files(run) == files(tiny_run)
    assert untouched.stat().st_mtime_ns == before


def test_an_error_on_one_rank_ends_all_of_them(tmp_path: Path):
    (tmp_path / "runs").write_text("a file where a folder should be")
    done = mpi_collect(3, tmp_path / "runs")
    assert done.returncode != 0
    assert "sad-hpc: error: cannot write" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_shard_with_a_flipped_bit_is_redone_even_if_the_marker_is_there(
    tiny_run: Run, tmp_path: Path
):
    run = Run(tiny_run.experiment, tmp_path)
    collect(run)
    path = run.data().path / "train/shard-00003.h5"
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    assert run.data().done is not None
    collect(run)
    assert files(run) == files(tiny_run)


def dealt(pieces: int, seconds: float) -> list[list[int]]:
    """The numbers that each of two ranks worked on, all of them equally long."""
    code = f"""
import json, time
from mpi4py import MPI
from sad_hpc.collect.work_queue import deal
world, mine = MPI.COMM_WORLD, []
def work(number):
    mine.append(number)
    time.sleep({seconds})
    return number
world.barrier()
made = list(deal(world, range({pieces}), "dynamic", work, lambda: False))
shares = world.gather(mine)
if world.Get_rank() == 0:
    assert sorted(made) == sorted(sum(shares, [])) == list(range({pieces}))
    print(json.dumps(shares))
else:
    assert made == []
"""
    done = subprocess.run(
        [BIN / "mpiexec", "-n", "2", sys.executable, "-c", code], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    shares: list[list[int]] = json.loads(done.stdout)
    return shares


def test_neither_rank_waits_for_the_others_work():
    assert min(map(len, dealt(40, 0.02))) >= 15


def test_the_first_piece_done_rank_0_answers_what_it_was_asked_meanwhile():
    # And the last piece is not given to rank 1, which has another one before it.
    assert dealt(6, 0.3) == [[0, 4, 5], [1, 2, 3]]


@pytest.fixture
def ctrl_c_is_heard() -> Iterator[None]:
    """A shell's background jobs ignore it, and so would what they start."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.faults
@pytest.mark.parametrize(
    ("ranks", "number", "first", "said"),
    [
        (1, signal.SIGINT, 0, "interrupted"),
        (1, signal.SIGTERM, 0, "lower data.block_tasks"),
        (2, signal.SIGUSR2, 0, "lower data.block_tasks"),
        (2, signal.SIGUSR2, 1, "lower data.block_tasks"),
    ],
)
def test_a_block_of_years_is_left_soon_by_all_ranks(
    tmp_path: Path, ranks: int, number: int, first: int, said: str, ctrl_c_is_heard: None
):
    command = [*([BIN / "mpiexec", "-n", str(ranks)] if ranks > 1 else []), BIN / "sad-hpc"]
    command += ["collect", TINY, "--runs", tmp_path, "data.episodes_per_action=2000000000"]
    process = subprocess.Popen([*map(str, command)], stderr=subprocess.PIPE, text=True)
    try:
        while not list(tmp_path.rglob("progress.json")):
            time.sleep(0.1)
        time.sleep(0.5)
        family = [psutil.Process(process.pid), *psutil.Process(process.pid).children(True)]
        workers = [each for each in family if each.name() == "sad-hpc"]
        told = time.monotonic()
        for worker in workers[first:] + workers[:first]:
            worker.send_signal(number)
            time.sleep(0.1)
        _, errors = process.communicate(timeout=HUNG)
    except BaseException:
        process.terminate()
        raise
    assert len(workers) == ranks and time.monotonic() - told < SOON
    assert said in errors and "Traceback" not in errors and process.returncode != 0
