"""Killed processes and lost nodes on a real Slurm: no work is lost."""

import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from tests.cluster.pipeline import (
    LONGER,
    Pipeline,
    processes_of_jobs,
    ranks_of_jobs,
    wait_until,
)

pytestmark = pytest.mark.cluster

ALL = slice(None)


@pytest.mark.parametrize(
    "stage, ranks",
    [
        ("pretrain", slice(1, 2)),
        pytest.param("pretrain", slice(0, 1), marks=pytest.mark.stress),
        pytest.param("pretrain", ALL, marks=pytest.mark.stress),
        pytest.param("collect", slice(1, 2), marks=pytest.mark.stress),
        pytest.param("collect", slice(0, 1), marks=pytest.mark.stress),
        pytest.param("evaluate", ALL, marks=pytest.mark.stress),
    ],
)
def test_killed_ranks_end_their_job_and_the_next_launch_goes_on(
    pipeline: Pipeline, undisturbed: Pipeline, stage: str, ranks: slice
) -> None:
    launcher = pipeline.launch("--wait")
    pipeline.wait_until_half_done(stage)
    for process in pipeline.ranks(stage)[ranks]:
        process.kill()
    log = pipeline.finish(launcher, code=1)
    assert f"{pipeline.step(stage).title}: failed" in log
    pipeline.finish()
    pipeline.same_as(undisturbed)


@contextmanager
def lost(node: str, env: dict[str, str], with_its_jobs: bool) -> Iterator[None]:
    """Within this block a node's daemon is dead; afterwards it starts as it was started."""
    folder = Path(env["SAD_HPC_DEV_CLUSTER"])
    pid = folder / "pid" / node
    daemon = psutil.Process(int(pid.read_text()))
    command, variables = daemon.cmdline(), daemon.environ()
    dying = [daemon, *(processes_of(node, env) if with_its_jobs else [])]
    for end in (psutil.Process.suspend, psutil.Process.kill):
        # First none of them moves any more, lest one reports how another died.
        for process in dying:
            with suppress(psutil.Error):
                end(process)
    try:
        yield
    finally:
        with (folder / f"log/{node}.log").open("a") as log:
            again = subprocess.Popen(
                command, env=variables, cwd="/", stdout=log, stderr=log, start_new_session=True
            )
        pid.write_text(str(again.pid))


def processes_of(node: str, env: dict[str, str]) -> set[psutil.Process]:
    """Return the processes of all jobs on a node, and the daemons of their steps."""
    found = set()
    for process, _, variables in processes_of_jobs(env["SLURM_CONF"]):
        if variables["SLURMD_NODENAME"] == node:
            found.add(process)
            with suppress(psutil.Error):
                # A step's daemon writes its title over its environment.
                found |= {each for each in process.parents() if each.name() == "slurmstepd"}
    return found


@pytest.mark.stress
@pytest.mark.parametrize("with_its_jobs", [True, False])
def test_a_job_that_loses_its_node_starts_again_elsewhere(
    dev_cluster: dict[str, str], tmp_path: Path, longer_undisturbed: Pipeline, with_its_jobs: bool
) -> None:
    """Without its jobs: the daemon alone is dead, and for a while the job runs twice."""
    pipeline = Pipeline(dev_cluster, tmp_path, *LONGER)
    launcher = pipeline.launch("--wait")
    pipeline.wait_until_half_done("pretrain")
    node = pipeline.ranks("pretrain")[0].environ()["SLURMD_NODENAME"]
    with lost(node, dev_cluster, with_its_jobs):
        wait_until(lambda: pipeline.node_state(node).startswith("down"), f"Slurm misses {node}")
        pipeline.finish(launcher)
    assert "Restarts=0" not in pipeline.shown("pretrain")
    pipeline.same_as(longer_undisturbed)
    wait_until(lambda: pipeline.node_state(node) == "idle", f"{node} is back")


KILLS = ("SIGKILL of one rank", "SIGKILL of all ranks")


class Strikes:
    """Faults at random moments, most of them kills, on whatever is running."""

    def __init__(self, pipeline: Pipeline, seed: int, longest_pause: float) -> None:
        self._pipeline, self._random = pipeline, np.random.default_rng(seed)
        self._longest_pause = longest_pause
        self._start = time.monotonic()
        self.survived: Counter[str] = Counter()
        self._kinds: dict[str, Callable[[str, list[psutil.Process]], Any]] = {
            KILLS[0]: lambda job, ranks: self._kill([self._random.choice(ranks)]),
            KILLS[1]: lambda job, ranks: self._kill(ranks),
            "scancel --signal=USR2": lambda job, ranks: self._slurm(
                "scancel", "--signal=USR2", job
            ),
            "scontrol requeue": lambda job, ranks: self._slurm("scontrol", "requeue", job),
            "scancel": lambda job, ranks: self._slurm("scancel", job),
        }

    def wait(self) -> None:
        """Until the next moment."""
        time.sleep(self._random.uniform(1, self._longest_pause))

    @property
    def kills(self) -> int:
        """Number of faults that were SIGKILLs."""
        return sum(self.survived[kind] for kind in KILLS)

    def strike(self) -> None:
        """One fault, if anything is running."""
        running = ranks_of_jobs(self._pipeline.env["SLURM_CONF"])
        if not running:
            return
        job = str(self._random.choice(sorted({job for job, _ in running})))
        kind = str(self._random.choice(list(self._kinds), p=[0.4, 0.3, 0.1, 0.1, 0.1]))
        with suppress(psutil.Error, subprocess.CalledProcessError):  # it may just have ended
            self._kinds[kind](job, [process for each, process in running if each == job])
            self.survived[kind] += 1
            print(f"{time.monotonic() - self._start:6.1f} s: {kind}, job {job}", flush=True)

    def _kill(self, ranks: list[psutil.Process]) -> None:
        for process in ranks:
            process.send_signal(signal.SIGKILL)

    def _slurm(self, *command: str) -> None:
        subprocess.run(command, env=self._pipeline.env, check=True, capture_output=True)


@pytest.mark.stress
@pytest.mark.parametrize(
    "kills, longest_pause, calm",
    [(2, 5, "undisturbed"), (20, 15, "longer_undisturbed")],
)
def test_a_storm_of_faults_changes_no_number(
    dev_cluster: dict[str, str],
    tmp_path: Path,
    request: pytest.FixtureRequest,
    figures: dict[str, Any],
    kills: int,
    longest_pause: float,
    calm: str,
) -> None:
    expected: Pipeline = request.getfixturevalue(calm)
    struck = Pipeline(dev_cluster, tmp_path, *expected.overrides)
    strikes, launches = Strikes(struck, 0, longest_pause), 0
    while strikes.kills < kills:
        # What failed is submitted again; what is queued again by itself is left alone.
        struck.finish(struck.launch())
        launches += 1
        strikes.wait()
        strikes.strike()
        assert not struck.step("aggregate").complete, "too short a pipeline"
    for _ in range(5):
        launches += 1
        launcher = struck.launch("--wait")
        launcher.communicate()
        if launcher.returncode == 0:
            break
    struck.same_as(expected)
    figures["faults survived"] = dict(strikes.survived)
    figures["launches in the storm"] = launches
    print(f"{strikes.survived.total()} faults survived with {launches} launches")
