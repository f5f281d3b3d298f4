"""One writer per folder, observed from two processes."""

import errno
import fcntl
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import pytest

from sad_hpc.collect import stage as collect_module
from sad_hpc.collect.stage import collect
from sad_hpc.errors import UserError
from sad_hpc.experiment.load import load_experiment
from sad_hpc.parallel import preemption
from sad_hpc.parallel.preemption import Preempted
from sad_hpc.parallel.ranks import SingleProcess
from sad_hpc.storage import lock as holder
from sad_hpc.storage.lock import HEARTBEAT, held
from sad_hpc.storage.run import Run
from tests.conftest import TINY
from tests.patience import HUNG

pytestmark = pytest.mark.faults

HOLD = """
import sys, time
from pathlib import Path
from sad_hpc.storage.lock import held
with held(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(float(sys.argv[2]))
"""

WITHOUT_LOCKS = """
import fcntl, sys
def refuse(*_):
    raise OSError(int(sys.argv[3]), "refused")
fcntl.flock = refuse
"""


def hold(
    folder: Path, seconds: float, job: str = "", refusal: int | None = None
) -> "subprocess.Popen[str]":
    """Another process that holds a folder from now on, where locks may be refused."""
    environment = {**os.environ, "SLURM_JOB_ID": job}
    code = HOLD if refusal is None else WITHOUT_LOCKS + HOLD
    command = [sys.executable, "-c", code, str(folder), str(seconds), str(refusal)]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "held\n"
    return process


@pytest.fixture
def other(tmp_path: Path) -> Iterator["subprocess.Popen[str]"]:
    process = hold(tmp_path, 600, job="17")
    yield process
    process.kill()
    process.wait()


def test_the_second_is_told_who_holds_the_folder(
    other: "subprocess.Popen[str]", tmp_path: Path
) -> None:
    who = rf"in use by process {other.pid} on \S+ \(job 17\), since \d{{4}}-.*remove .*\.lock"
    with pytest.raises(UserError, match=who), held(tmp_path):
        pass


def test_a_holder_that_was_killed_holds_nothing(
    other: "subprocess.Popen[str]", tmp_path: Path
) -> None:
    other.send_signal(signal.SIGKILL)
    other.wait()
    with held(tmp_path):
        pass
    with held(tmp_path):  # the end of a holder frees the lock
        pass


@pytest.mark.parametrize("refusal", [errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP])
def test_where_locks_are_refused_a_file_is_the_lock(
    refusal: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = hold(tmp_path, 600, refusal=refusal)
    monkeypatch.setattr(fcntl, "flock", mock.Mock(side_effect=OSError(refusal, "refused")))
    who = rf"in use by process {other.pid} on .*remove .*\.in-use"
    with pytest.raises(UserError, match=who), held(tmp_path):
        pass
    other.kill()  # what it leaves behind is taken over, on this file system
    other.wait()
    for _ in range(2):
        with held(tmp_path):
            pass


def test_a_job_that_was_queued_again_lets_its_earlier_start_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_RESTART_COUNT", "1")
    process = hold(tmp_path, 1.0)
    with held(tmp_path):
        process.wait(timeout=HUNG)


@contextmanager
def beating(process: "subprocess.Popen[str]", folder: Path, ahead: float = 0) -> Iterator[None]:
    """Within this block the holder of a folder shows signs of life, until it ends.

    Args:
        process: the holder.
        folder: that it holds.
        ahead: seconds by which the file server's clock is.
    """

    def beat() -> None:
        while process.poll() is None:
            (folder / HEARTBEAT).write_text("{}")
            os.utime(folder / HEARTBEAT, (time.time() + ahead,) * 2)
            time.sleep(0.1)

    ticks = threading.Thread(target=beat)
    ticks.start()
    yield
    ticks.join()


def test_an_earlier_start_that_shows_signs_of_life_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_RESTART_COUNT", "1")
    monkeypatch.setattr(holder, "REQUEUED_SECONDS", 2.5)
    process = hold(tmp_path, 5.0)
    with beating(process, tmp_path), held(tmp_path):
        assert process.wait(timeout=HUNG) == 0


def test_whoever_waits_can_be_stopped(
    other: "subprocess.Popen[str]", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_RESTART_COUNT", "1")
    with preemption.watched(), pytest.raises(Preempted) as caught:
        os.kill(os.getpid(), signal.SIGUSR2)
        with held(tmp_path):
            pass
    copy = pickle.loads(pickle.dumps(caught.value))
    assert copy.requeue and str(copy) == str(caught.value) == "stopped by SIGUSR2"


def test_patience_has_an_end(
    other: "subprocess.Popen[str]", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_RESTART_COUNT", "1")
    monkeypatch.setattr(holder, "REQUEUED_SECONDS", 0.2)
    with pytest.raises(UserError, match="in use by"), held(tmp_path):
        pass


def test_a_signal_while_rank_0_waits_is_every_ranks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or the others would wait for its broadcast until the job's time is up."""
    monkeypatch.setenv("SLURM_RESTART_COUNT", "1")
    run, told = Run(load_experiment(TINY), tmp_path), mock.Mock(wraps=SingleProcess())
    monkeypatch.setattr(collect_module, "world", lambda: told)
    run.data().path.mkdir(parents=True)
    process = hold(run.data().path, 600)
    try:
        with preemption.watched(), pytest.raises(Preempted) as caught:
            os.kill(os.getpid(), signal.SIGUSR2)
            collect(run)
    finally:
        process.kill()
        process.wait()
    told.bcast.assert_called_once_with(caught.value)


def test_a_stage_that_somebody_else_works_on_is_left_alone(tmp_path: Path) -> None:
    run = Run(load_experiment(TINY), tmp_path)
    folder = run.data().path
    folder.mkdir(parents=True)
    process = hold(folder, 600)
    try:
        with pytest.raises(UserError, match="in use by"):
            collect(run)
        assert not list(folder.rglob("shard-*"))
    finally:
        process.kill()
        process.wait()
