"""Jumps of the system clock: no wait misses its event."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from sad_hpc.errors import UserError
from sad_hpc.experiment.load import load_experiment
from sad_hpc.pretrain.stage import pretrain
from sad_hpc.storage import lock as holder
from sad_hpc.storage.lock import HEARTBEAT, held
from sad_hpc.storage.run import Run
from tests.conftest import TINY, clockless_metrics, with_data_of
from tests.patience import HUNG, SOON
from tests.preload import compiled
from tests.storage.test_lock import beating, hold

pytestmark = pytest.mark.faults

HOUR = 3600

# The time of day, moved by as many seconds as the file in $CLOCK_FILE is long.
SOURCE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>

int clock_gettime(clockid_t clock, struct timespec *now) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
    int code = real(clock, now);
    struct stat file;
    if (clock == CLOCK_REALTIME && stat(getenv("CLOCK_FILE"), &file) == 0)
        now->tv_sec += file.st_size - 7200;
    return code;
}
"""

OVERRIDES = [
    *("rows=[SAD]", "seeds=[0]", "pretrain.batch_size=4", "pretrain.epochs=40"),
    *("pretrain.checkpoint_minutes=0.02", "pretrain.log_seconds=0.1"),
]


@pytest.fixture
def set_clock(tmp_path: Path) -> Iterator[Callable[[int], None]]:
    """Moves the clock of the programs that start in this environment, seconds from now's."""

    def set_clock(seconds: int) -> None:
        os.truncate(tmp_path / "clock", 7200 + seconds)

    (tmp_path / "clock").touch()
    set_clock(0)
    yield set_clock


@pytest.mark.stress
def test_a_training_goes_on_and_says_so(
    tiny_run: Run, tmp_path: Path, set_clock: Callable[[int], None]
) -> None:
    struck, calm = (
        with_data_of(tiny_run, Run(load_experiment(TINY, OVERRIDES), tmp_path / name))
        for name in ("struck", "calm")
    )
    folder = struck.checkpoint("SAD", 0)

    def done() -> int:
        return int((folder.progress or {"done": 0})["done"])

    def wait_until(reached: int) -> None:
        deadline = time.monotonic() + HUNG
        while done() < reached:
            assert time.monotonic() < deadline and process.poll() is None, "no heartbeat comes"
            time.sleep(0.02)

    library = compiled(SOURCE, tmp_path)
    clock = {"LD_PRELOAD": str(library), "CLOCK_FILE": str(tmp_path / "clock")}
    command = ["sad-hpc", "pretrain", TINY, *OVERRIDES, "--runs", struck.runs]
    process = subprocess.Popen(
        [Path(sys.executable).parent / command[0], *command[1:]],
        env=os.environ | clock, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        wait_until(200)
        for jump in (HOUR, -HOUR):
            set_clock(jump)
            time.sleep(0.3)  # for the heartbeat that is being written
            wait_until(done() + 200)
            # Its last heartbeat it sends whatever the clock says.
            assert folder.progress and done() < folder.progress["total"], "no heartbeat came"
        _, said = process.communicate(timeout=HUNG)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 0, said
    pretrain(calm, "SAD", 0)
    folders = [run.checkpoint("SAD", 0).path for run in (struck, calm)]
    weights = [torch.load(f / "weights.pt", weights_only=True)["state"] for f in folders]
    for name, weight in weights[0].items():
        assert torch.equal(weight, weights[1][name]), name
    assert clockless_metrics(folders[0]) == clockless_metrics(folders[1])


@pytest.mark.parametrize("ahead", [HOUR, -HOUR])
def test_signs_of_life_count_whatever_the_file_servers_clock_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ahead: int
) -> None:
    monkeypatch.setenv("SLURM_RESTART_COUNT", "1")
    monkeypatch.setattr(holder, "REQUEUED_SECONDS", 2.0)
    process = hold(tmp_path, 5.0)
    with beating(process, tmp_path, ahead), held(tmp_path):
        assert process.wait(timeout=HUNG) == 0


@pytest.mark.parametrize("ahead", [HOUR, -HOUR])
def test_patience_is_no_matter_of_the_time_of_day(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ahead: int
) -> None:
    """A heartbeat from the future must not keep a job waiting for an hour."""
    (tmp_path / HEARTBEAT).write_text("{}")
    os.utime(tmp_path / HEARTBEAT, (time.time() + ahead,) * 2)
    monkeypatch.setenv("SLURM_RESTART_COUNT", "1")
    monkeypatch.setattr(holder, "REQUEUED_SECONDS", 0.5)
    process = hold(tmp_path, 600)
    started = time.monotonic()
    try:
        with pytest.raises(UserError, match="in use by"), held(tmp_path):
            pass
    finally:
        process.kill()
        process.wait()
    assert time.monotonic() - started < SOON
