"""The whole graph on this machine, with stand-ins for the stages."""

from pathlib import Path

import pytest
from submitit import LocalExecutor

from sad_hpc.errors import SadError
from sad_hpc.launch import launch
from sad_hpc.launch.cluster import load_cluster
from sad_hpc.launch.executor import NO_LIMIT_MINUTES, run_tag, start_locally
from sad_hpc.launch.graph import Step, graph
from sad_hpc.launch.job import StageJob
from sad_hpc.launch.local import LocalRunner, jobs_at_once
from sad_hpc.launch.records import load_records
from sad_hpc.launch.status import show_status
from sad_hpc.run import Run
from tests.launch.conftest import FakeSlurm, complete, steps_of


def start(run: Run, *overrides: str) -> int:
    cluster = load_cluster("local", list(overrides))
    results = run.runs.parent / "results"
    return launch(run, Path("x.yaml"), [], results, cluster, dry_run=False, wait=False)


def calls(run: Run) -> list[str]:
    return (run.path / "calls.txt").read_text().splitlines()


def test_every_stage_runs_once(run: Run, stubs: None, capsys: pytest.CaptureFixture[str]) -> None:
    complete(*steps_of(run, "pretrain")[1:], *steps_of(run, "evaluate")[2:])
    assert start(run, "collect.cpus_per_task=3") == 0
    assert calls(run)[:2] == ["collect ranks=2 threads=3", "pretrain SAD 0 ranks=2"]
    assert sorted(calls(run)[2:4]) == ["evaluate SAD 0", "evaluate SAD 1"]
    assert calls(run)[4:] == ["aggregate results"]
    assert set(load_records(run)) == {step.title for step in graph(run)} - {
        step.title for step in [*steps_of(run, "pretrain")[1:], *steps_of(run, "evaluate")[2:]]
    }
    assert start(run) == 0
    assert len(calls(run)) == 5
    capsys.readouterr()
    assert show_status(run.path) == 0
    assert "10 steps: 10 complete" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("pretrain.tasks=3", r"batch_size=64 does not divide over 3 ranks \(cluster.pretrain"),
        ("evaluate.gpus=2", "2 GPUs are asked for"),
    ],
)
def test_what_a_later_stage_cannot_do_is_said_before_anything_starts(
    run: Run, stubs: None, override: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    with pytest.raises(SadError, match=said):
        start(run, override)
    assert not run.path.exists()
    complete(*steps_of(run, "pretrain"), *steps_of(run, "evaluate"))
    assert start(run, override) == 0


@pytest.mark.parametrize(
    ("overrides", "at_once"),
    [([], 2), (["array_parallelism=9"], 4), (["array_parallelism=9", "pretrain.tasks=1"], 8),
     (["array_parallelism=9", "pretrain.tasks=3"], 2), (["pretrain.tasks=9"], 1),
     (["pretrain.tasks=1", "pretrain.cpus_per_task=5"], 1), (["pretrain.gpus=1"], 1)],
)  # fmt: skip
def test_trainings_share_the_cores(
    overrides: list[str], at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda process: set(range(8)))
    cluster = load_cluster("local", overrides)
    assert jobs_at_once(cluster, "pretrain") == at_once
    assert jobs_at_once(cluster, "collect") == jobs_at_once(cluster, "aggregate") == 1
    assert jobs_at_once(cluster, "evaluate") == cluster.array_parallelism


def test_trainings_run_beside_each_other(
    run: Run, stubs: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    complete(*steps_of(run, "collect"))
    monkeypatch.setattr("sad_hpc.launch.local.jobs_at_once", lambda cluster, stage: 3)
    started: list[int] = []
    start_step = LocalRunner._start

    def count(runner: LocalRunner, step: Step) -> None:
        start_step(runner, step)
        started.append(len(runner.running))

    monkeypatch.setattr(LocalRunner, "_start", count)
    assert start(run) == 0
    assert started[:3] == [1, 2, 3] and max(started) == 3


def test_a_failure_leaves_the_others_alone(
    run: Run, stubs: None, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    complete(*steps_of(run, "collect"), *steps_of(run, "pretrain"))
    complete(*steps_of(run, "evaluate")[2:])
    monkeypatch.setenv("STUB_FAILS", "evaluate/sad-seed0")
    assert start(run) == 1
    assert calls(run) == ["evaluate SAD 1"]
    printed = capsys.readouterr().out
    assert "FAILED" in printed and "sad-hpc: error: told to fail" in printed
    assert "Traceback" not in printed
    assert "aggregate not started, since evaluate sad-seed0" in printed
    assert show_status(run.path) == 1
    status = capsys.readouterr().out
    assert "failed (its process ended)" in status and "stuck behind evaluate sad-seed0" in status
    monkeypatch.delenv("STUB_FAILS")
    assert start(run) == 0
    assert calls(run)[1:] == ["evaluate SAD 0", "aggregate results"]


def test_what_slurm_still_has_is_not_done_here(run: Run, stubs: None, slurm: FakeSlurm) -> None:
    """Not even where the launcher died before it could record the job."""
    slurm.queue(run_tag(run), j100="RUNNING", j101="PENDING", j102="COMPLETED")
    with pytest.raises(SadError, match=r"--cluster slurm, or `scancel 100 101`"):
        start(run)
    assert not (run.path / "config.json").exists()
    slurm.queue("another run", j100="RUNNING")
    assert start(run) == 0


def test_a_machine_without_a_queue_has_no_time_limits(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """submitit's local executor cannot queue mpiexec again, and others thrice at most."""
    limits = []
    monkeypatch.setattr(
        LocalExecutor, "submit", lambda self, _: limits.append(self.parameters["timeout_min"])
    )
    cluster = load_cluster("local", ["collect.minutes=2"])
    (step,) = steps_of(run, "collect")
    start_locally(run, cluster, "collect", StageJob.of(run, step, run.path))
    assert limits == [NO_LIMIT_MINUTES] and NO_LIMIT_MINUTES > 365 * 24 * 60


def test_a_failing_rank_ends_the_others(
    run: Run, stubs: None, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STUB_FAILS", "collect")
    assert start(run) == 1
    printed = capsys.readouterr().out
    assert "sad-hpc: error: told to fail" in printed
    assert "pretrain not started, since collect" in printed
