"""Stages that a signal stops: they save, and a new start gives the same result."""

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from sad_hpc.collect.stage import collect
from sad_hpc.evaluate.stage import evaluate
from sad_hpc.parallel import preemption
from sad_hpc.parallel.preemption import Preempted
from sad_hpc.pretrain.rank_sync import RankConsensus
from sad_hpc.pretrain.stage import pretrain
from sad_hpc.storage.progress import Progress
from sad_hpc.storage.run import Run
from tests.conftest import clockless_metrics

pytestmark = pytest.mark.faults


@pytest.fixture
def signalled(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], list[float]]:
    """signalled(n): the n-th report of progress sends this process a signal."""

    def arrange(number: int) -> list[float]:
        update, seen = Progress.update, []

        def updated(self: Progress, done: float, note: str = "") -> None:
            seen.append(done)
            update(self, done, note)
            if len(seen) == number:
                os.kill(os.getpid(), signal.SIGUSR2)

        monkeypatch.setattr(Progress, "update", updated)
        return seen

    return arrange


def stopped(work: Callable[[], None]) -> str:
    with pytest.raises(Preempted) as caught, preemption.watched():
        work()
    assert caught.value.requeue
    return str(caught.value)


def run_of(tiny_run: Run, folder: Path, *stages: str) -> Run:
    run = Run(tiny_run.experiment, folder)
    run.path.mkdir(parents=True)
    for stage in stages:
        (run.path / stage).symlink_to(tiny_run.path / stage)
    return run


def test_collection_finishes_its_block_and_goes_on_with_the_next(
    tiny_run: Run, tmp_path: Path, signalled
):
    run, seen = run_of(tiny_run, tmp_path), signalled(2)
    assert stopped(lambda: collect(run)) == "stopped with 4 blocks of train left"
    shards = {path: path.stat().st_mtime_ns for path in run.data().path.rglob("shard-*.h5")}
    assert len(shards) == 2 and run.data().done is None
    assert not list(run.data().path.rglob("dataset.h5"))
    collect(run)
    assert seen == [1, 2, 3, 4, 5, 6, 1, 2, 3]
    assert all(path.stat().st_mtime_ns == time for path, time in shards.items())
    assert run.data().done["digests"] == tiny_run.data().done["digests"]


@pytest.mark.parametrize("step", [3, 8])
def test_training_saves_at_a_step_that_all_ranks_agree_on(
    tiny_run: Run, tmp_path: Path, signalled, step: int, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("sad_hpc.pretrain.rank_sync.MOST_STEPS", 1)
    runs = [run_of(tiny_run, tmp_path / name, "data") for name in ("undisturbed", "stopped")]
    pretrain(runs[0], "SAD", 0)
    signalled(step)
    assert stopped(lambda: pretrain(runs[1], "SAD", 0)) == f"stopped after step {step}"
    folder = runs[1].checkpoint("SAD", 0)
    assert folder.done is None
    assert (folder.path / f"state/step-{step:08d}").is_dir()
    pretrain(runs[1], "SAD", 0)
    states = [
        torch.load(run.checkpoint("SAD", 0).path / "weights.pt", weights_only=True)["state"]
        for run in runs
    ]
    for name, weight in states[0].items():
        assert torch.allclose(weight, states[1][name], rtol=0, atol=1e-6), name
    metrics = [clockless_metrics(run.checkpoint("SAD", 0).path) for run in runs]
    assert metrics[0] == metrics[1]


def test_ranks_ask_each_other_seldom_but_in_time(monkeypatch: pytest.MonkeyPatch):
    now = [0.0]
    monkeypatch.setattr("sad_hpc.pretrain.rank_sync.time.monotonic", lambda: now[0])
    monkeypatch.setattr("sad_hpc.pretrain.rank_sync.dist.all_reduce", lambda values, op: None)
    consensus = RankConsensus(torch.device("cpu"), True, checkpoint_minutes=1.0)
    asked, saved = [], []
    for step in range(1, 60):
        now[0] += 0.01 if step < 30 else 25.0  # the machine turns slow
        if consensus.is_due(step):
            asked.append(step)
            if consensus.reach(step).save:
                saved.append(step)
    assert asked == [1, 9, 17, 25, *range(33, 60)]
    assert saved == [*range(33, 60, 3)]


def test_evaluation_keeps_the_chunks_that_are_finished(tiny_run: Run, tmp_path: Path, signalled):
    run = run_of(tiny_run, tmp_path, "data")
    pretrain(run, "SAD", 0)
    path = run.evaluation("SAD", 0).path
    evaluate(run, "SAD", 0)
    expected = (path / "result.h5").read_bytes()
    for file in path.glob("*"):
        file.unlink()
    seen = signalled(6)  # three chunks of 1 + 3 reports
    assert stopped(lambda: evaluate(run, "SAD", 0)) == "stopped by SIGUSR2"
    assert [file.name for file in (path / "chunks").glob("*")] == ["00000.h5"]
    evaluate(run, "SAD", 0)
    assert seen[6] == 5, "it did not go on after the first chunk"
    assert (path / "result.h5").read_bytes() == expected


def test_outside_of_a_stage_the_signals_are_what_they_were():
    before = signal.getsignal(signal.SIGTERM)
    with preemption.watched():
        assert not preemption.requested()
        os.kill(os.getpid(), signal.SIGTERM)
        assert preemption.requested() and not preemption.requeue_requested()
    assert signal.getsignal(signal.SIGTERM) is before
    assert not preemption.requested()
