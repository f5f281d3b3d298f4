"""The user's shell lines of a job, one of which fails."""

import os
import subprocess
from pathlib import Path

import pytest

from sad_hpc.launch.cluster import load_cluster
from sad_hpc.launch.pipeline import launch
from sad_hpc.launch.srun import QUEUE_AGAIN, REQUESTS, setup_lines
from sad_hpc.launch.status import show_status
from sad_hpc.storage.run import Run
from tests.launch.conftest import FakeSlurm, complete, steps_of


def shell(program: str, *setup: str) -> "subprocess.CompletedProcess[str]":
    lines = [*setup_lines(setup), 'echo "works with $A"']
    return subprocess.run([program, "-c", "\n".join(lines)], capture_output=True, text=True)


@pytest.mark.parametrize(("state", "queued"), [("RUNNING", "requeue 36_3\n"), ("CANCELLED", "")])
def test_a_container_queues_its_own_element_again(
    slurm: FakeSlurm, tmp_path: Path, state: str, queued: str
) -> None:
    """The element whose job id is that of its array."""
    (tmp_path / "requeue-36_3").touch()
    said = f'case $1 in show) echo "JobId=36 JobState={state}" ;; *) echo "$@" ;; esac'
    slurm._program("scontrol", said)
    array = {"SLURM_JOB_ID": "36", "SLURM_ARRAY_JOB_ID": "36", "SLURM_ARRAY_TASK_ID": "3"}
    done = subprocess.run(
        ["bash", "-c", "\n".join(["(exit 7)", *QUEUE_AGAIN])],
        env={**os.environ, **array, REQUESTS: str(tmp_path)}, capture_output=True, text=True,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (7, queued)
    assert not (tmp_path / "requeue-36_3").exists()


@pytest.mark.parametrize("program", ["sh", "bash"])
@pytest.mark.parametrize("line", ["false", "test -d '/no where' # \"$HOME\"", "(exit 9)"])
def test_a_line_that_fails_ends_the_job_and_is_named(program: str, line: str) -> None:
    done = shell(program, "A=1", line, "A=2")
    code = 9 if "9" in line else 1
    assert done.returncode == code and done.stdout == ""
    assert done.stderr == f"sad-hpc: error: cluster.setup: {line}: exit code {code}\n"


@pytest.mark.parametrize("program", ["sh", "bash"])
def test_lines_that_succeed_are_as_if_they_stood_alone(program: str) -> None:
    done = shell(program, "A=1 # a comment", "false || true", "for A in 2 3; do", "true", "done")
    assert (done.returncode, done.stdout, done.stderr) == (0, "works with 3\n", "")
    assert setup_lines([]) == []


def test_a_launch_on_this_machine_shows_it(
    run: Run, stubs: None, capsys: pytest.CaptureFixture[str]
) -> None:
    complete(*steps_of(run, "collect"), *steps_of(run, "pretrain"), *steps_of(run, "evaluate")[1:])
    for setup, code in (("[echo hello, module_of_nowhere]", 1), ("['echo hello # there']", 0)):
        cluster = load_cluster("local", [f"setup={setup}"])
        results = run.runs.parent / "results"
        assert launch(run, Path("x.yaml"), [], results, cluster, False, False) == code
        shown = capsys.readouterr().out
        assert ("error: cluster.setup: module_of_nowhere: exit code 127" in shown) is (code == 1)
        assert show_status(run) == code
        shown = capsys.readouterr().out
        assert ("error: cluster.setup: module_of_nowhere: exit code 127" in shown) is (code == 1)
