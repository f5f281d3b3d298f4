"""Jobs that a signal stops, and which of them requeue themselves."""

import dataclasses
import os
import signal
import threading
import time
from pathlib import Path
from subprocess import Popen

import pytest

from sad_hpc.launch.graph import graph
from sad_hpc.launch.job import StageJob
from sad_hpc.launch.pack import PackJob
from sad_hpc.launch.records import JobRecord, save_records
from sad_hpc.launch.slurm import QueueEntry
from sad_hpc.launch.status import step_states
from sad_hpc.parallel.preemption import Preempted
from sad_hpc.storage import files
from sad_hpc.storage.run import Run
from tests.launch.conftest import FakeSlurm, complete, steps_of


class QueuedAgain(SystemExit):
    """Exit of submitit's handler."""


def queue_again(number: int, frame: object) -> None:
    raise QueuedAgain


@pytest.fixture
def stopped_job(run: Run, slurm: FakeSlurm, monkeypatch: pytest.MonkeyPatch):
    """A job whose stage a signal stops, one that asks for a requeue or not."""

    def make(requeue: bool, handler: object = queue_again) -> StageJob:
        def stage(*arguments: object) -> None:
            folder = graph(run)[0].folder
            with run.writing(folder, {}):
                folder.heartbeat(5, 10, "blocks")
                raise Preempted("stopped", requeue)

        monkeypatch.setattr("sad_hpc.launch.graph.Step.call", stage)
        signal.signal(signal.SIGUSR2, handler)  # type: ignore[arg-type]
        return StageJob.of(run, graph(run)[0], Path("results"))

    before = signal.getsignal(signal.SIGUSR2)
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    yield make
    signal.signal(signal.SIGUSR2, before)


def say(slurm: FakeSlurm, state: str) -> None:
    """Set the answer of scontrol to job 7, the first of an array, whose other element runs."""
    lines = f"JobId=7 ArrayJobId=7 {state} X=1\nJobId=8 ArrayJobId=7 JobState=RUNNING X=1"
    body = f'test "$*" = "show job --oneliner 7" || exit 1; echo "{lines}"'
    slurm._program("scontrol", body)


@pytest.mark.parametrize(
    "requeue, state, queued",
    [
        (True, "JobState=COMPLETING", True),
        (True, "JobState=CANCELLED", False),  # after the signal that asked for a requeue
        (False, "JobState=RUNNING", True),  # preempted, with some time to end in
        (False, "JobState=CANCELLED", False),
        (False, "JobState=PENDING", False),  # Slurm itself has queued it
        (False, "Reason=JobState=RUNNING", False),
    ],
)
def test_a_stopped_job_is_queued_again_unless_slurm_is_ending_it(
    stopped_job, slurm: FakeSlurm, requeue: bool, state: str, queued: bool
) -> None:
    say(slurm, state)
    with pytest.raises(SystemExit) as caught:
        stopped_job(requeue)()
    assert isinstance(caught.value, QueuedAgain) == queued
    if not queued:
        assert caught.value.code == 128 + signal.SIGTERM


def test_a_pack_is_queued_again_whose_members_had_no_handler_yet(
    stopped_job, slurm: FakeSlurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    say(slurm, "JobState=RUNNING")
    monkeypatch.setattr(PackJob, "_start", lambda pack, number: Popen(["sleep", "60"]))
    pack = PackJob((stopped_job(False),))
    threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGTERM)).start()
    with pytest.raises(QueuedAgain):
        pack()


def test_other_ranks_neither_queue_it_nor_end_the_first(
    stopped_job, slurm: FakeSlurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    say(slurm, "JobState=RUNNING")
    monkeypatch.setenv("SLURM_PROCID", "1")
    with pytest.raises(SystemExit) as caught:
        stopped_job(True)()
    assert caught.value.code == 0


def test_where_it_cannot_be_queued_again_it_counts_as_unfinished(
    run: Run, stopped_job, capsys: pytest.CaptureFixture[str]
) -> None:
    def refused(number: int, frame: object) -> None:
        raise OSError("requeue is disabled")

    step = graph(run)[0]
    record = JobRecord("7", "slurm", time.time() - 500, "/log", os.uname().nodename)
    with pytest.raises(SystemExit):
        stopped_job(True, refused)()
    assert "cannot be requeued (requeue is disabled): launch again" in capsys.readouterr().err
    failed = QueueEntry("FAILED", end=time.time())
    state = step_states(graph(run), {step.title: record}, {"7": failed})[0]
    assert state.text == "unfinished (stopped by a signal and not requeued)"
    # A stop from before this job, or from before its last start, says nothing about it.
    again = QueueEntry("FAILED", start=time.time() + 5, end=time.time() + 9)
    assert step_states(graph(run), {step.title: record}, {"7": again})[0].kind == "failed"
    later = JobRecord("7", "slurm", time.time() + 5, "/log", os.uname().nodename)
    assert step_states(graph(run), {step.title: later}, {"7": failed})[0].kind == "failed"


def test_a_job_waits_for_what_another_node_has_finished(
    run: Run, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A network file system may show it late."""
    (collect,), step = steps_of(run, "collect"), steps_of(run, "pretrain")[0]
    begun: list[str] = []
    monkeypatch.setattr("sad_hpc.launch.graph.Step.call", lambda step, *_: begun.append(step.title))
    job = StageJob.of(run, step, Path("results"))
    monkeypatch.setattr(files, "LATE_SECONDS", 0.5)
    with pytest.raises(SystemExit):
        job()
    assert f"needs {collect.title}, which is not complete" in capsys.readouterr().err
    monkeypatch.setattr(files, "LATE_SECONDS", 60)
    threading.Timer(0.5, complete, [collect]).start()
    job()
    assert begun == [step.title]


@pytest.mark.parametrize("state, waits", [("OUT_OF_MEMORY", False), ("COMPLETED", True)])
def test_nobody_waits_for_a_job_that_has_ended_badly(
    run: Run, slurm: FakeSlurm, monkeypatch: pytest.MonkeyPatch, state: str, waits: bool
) -> None:
    collect, training = steps_of(run, "collect")[0], steps_of(run, "pretrain")[0]
    record = JobRecord("12_3", "slurm", time.time(), "/log", os.uname().nodename)
    save_records(run, {collect.title: record})
    slurm.queue(j12_3=state)
    waited: list[object] = []
    monkeypatch.setattr("sad_hpc.launch.graph.wait_until_seen", waited.append)
    with pytest.raises(SystemExit):
        StageJob.of(run, training, Path("results"))()
    assert bool(waited) == waits


def test_a_job_whose_step_is_no_more_says_so(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    job = StageJob.of(run, graph(run)[0], Path("results"))
    with pytest.raises(SystemExit):
        dataclasses.replace(job, title="collect of-an-earlier-version")()
    error = capsys.readouterr().err
    assert "collect of-an-earlier-version is not a step of made-up" in error
    assert "launch again" in error and "Traceback" not in error
