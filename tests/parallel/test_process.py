"""Standard output of commands and child processes, and exit codes while gloo frees a tensor."""

import atexit
import os
import subprocess
import sys
from pathlib import Path

import pytest
from submitit import LocalExecutor

from sad_hpc.parallel.process import end_before_teardown
from sad_hpc.parallel.submitit_private import PROGRAM
from tests.conftest import TINY
from tests.parallel.test_ranks import BIN
from tests.patience import HUNG

IN_A_GROUP = """
import atexit, sys, threading, time, types
from datetime import timedelta
import torch
import torch.distributed as dist
from sad_hpc import cli
from sad_hpc.parallel import preemption
from sad_hpc.launch import job
from sad_hpc.parallel.process import end_before_teardown

class FreedAtTheEnd:
    def __del__(self):
        time.sleep(0.2)  # Python is being torn down: its lock is free for a while

def join(rank):
    groups[rank] = dist.ProcessGroupGloo(store, rank, 2, timedelta(seconds=60))

dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
store, groups = dist.HashStore(), [None, None]
ranks = [threading.Thread(target=join, args=[rank]) for rank in (0, 1)]
for rank in ranks:
    rank.start()
for rank in ranks:
    rank.join()
sys.modules |= {"held": groups, "freed at the end": FreedAtTheEnd()}

def last_collective_call():
    sys.setswitchinterval(1000)  # no other thread gets Python's lock
    for group in groups:
        group.allreduce([torch.ones(10_000_000)])
    end = time.monotonic() + 1
    while time.monotonic() < end:
        pass

atexit.register(last_collective_call)
atexit.register(print, "exit functions ran")
"""
AS_SUBMITIT = """
sys.modules["__main__"].__spec__ = types.SimpleNamespace(name={program!r})
"""
COMMAND = """
def main():
    return {code}

cli.main = main
sys.exit(cli.run())
"""
PROBE = """
import runpy
from sad_hpc.parallel import ranks
ranks.world = lambda: types.SimpleNamespace(gather=lambda node: [node], Get_rank=lambda: 1)
sys.argv = ["cluster_probes", {name!r}, "."]
runpy.run_module("sad_hpc.launch.cluster_probes", run_name="__main__")
"""
JOB = """
def stage(*arguments):
    {end}

from pathlib import Path
from sad_hpc.experiment.load import load_experiment
from sad_hpc.launch.graph import Step, graph
from sad_hpc.storage.run import Run
Step.call = stage

run = Run(load_experiment(Path({config!r}), []), Path({folder!r}))
job.StageJob.of(run, graph(run)[0], Path({folder!r}))()
"""


def end_of(code: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", IN_A_GROUP + code]
    return subprocess.run(command, capture_output=True, text=True, timeout=HUNG)


@pytest.mark.slow
@pytest.mark.parametrize("code", [0, 1, 143])
def test_a_command_ends_with_its_code(code: int):
    done = end_of(COMMAND.format(code=code))
    assert (done.returncode, done.stdout) == (code, "exit functions ran\n"), done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("name, code", [("mpi", 0), ("none", 1)])
def test_a_probe_of_a_site_ends_with_its_code(name: str, code: int):
    done = end_of(PROBE.format(name=name))
    assert (done.returncode, done.stdout) == (code, "exit functions ran\n"), done.stderr
    assert ("KeyError" in done.stderr) == bool(code)


@pytest.mark.slow
@pytest.mark.parametrize(
    "end, code",
    [
        ("pass", 0),
        ("raise preemption.Preempted('stopped', requeue=False)", 143),
        ("raise ValueError('a fault')", 1),
    ],
)
def test_a_job_ends_with_its_code(end: str, code: int, tmp_path: Path):
    script = JOB.format(end=end, config=str(TINY), folder=str(tmp_path))
    program = "sad_hpc.launch.pack" if code == 143 else PROGRAM
    done = end_of(AS_SUBMITIT.format(program=program) + script)
    assert done.returncode == code, done.stderr
    assert done.stdout.endswith("exit functions ran\n")


@pytest.mark.slow
def test_a_job_that_submitit_started_is_not_aborted(tmp_path: Path):
    script = IN_A_GROUP + JOB.format(end="pass", config=str(TINY), folder=str(tmp_path))
    job = LocalExecutor(folder=tmp_path / "logs").submit(exec, script, {})
    job.result()
    job.wait()
    assert job.stdout().endswith("exit functions ran\n")
    assert "terminate called" not in job.stderr()


@pytest.mark.slow
def test_an_uncaught_exception_is_not_hidden():
    done = end_of("end_before_teardown(0)\nraise ValueError('later')")
    assert done.returncode != 0
    assert "ValueError: later" in done.stderr


@pytest.mark.slow
def test_a_process_in_no_group_ends_as_ever(monkeypatch: pytest.MonkeyPatch):
    """MPI still has to be left."""
    monkeypatch.setattr("sad_hpc.parallel.process._in_process_group", lambda: False)
    monkeypatch.setattr(atexit, "register", lambda *_: pytest.fail("something was registered"))
    end_before_teardown(0)


@pytest.mark.slow
def test_the_command_is_the_one_that_ends_so():
    assert "import run" in (Path(sys.executable).parent / "sad-hpc").read_text()


def test_the_program_that_replaces_a_command_has_its_standard_output(tmp_path: Path):
    srun = tmp_path / "srun"
    srun.write_text("#!/bin/sh\necho a rank speaks\n")
    srun.chmod(0o755)
    done = subprocess.run(
        [BIN / "sad-hpc", "ranks", "collect", "config.yaml"],
        env={"PATH": f"{tmp_path}:{os.environ['PATH']}", "SLURM_JOB_ID": "1"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "a rank speaks\n", "")
