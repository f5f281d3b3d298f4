"""The whole graph on this machine, with stubs of the stages."""

import itertools
import signal
import socket
import subprocess
import sys
import time
import types
from pathlib import Path

import pytest

from sad_hpc.errors import UserError
from sad_hpc.experiment.load import load_experiment
from sad_hpc.launch.cluster import load_cluster
from sad_hpc.launch.controller import visible_gpus
from sad_hpc.launch.executor import run_tag
from sad_hpc.launch.graph import Step, graph
from sad_hpc.launch.local import JobLog, LocalRunner, RunningStep, jobs_at_once
from sad_hpc.launch.pipeline import launch
from sad_hpc.launch.records import LOG_BYTES, JobRecord, load_records
from sad_hpc.launch.status import show_status
from sad_hpc.storage.run import Run
from sad_hpc.storage.stage_folder import StageFolder
from sad_hpc.user_code import SILENCE_PREFIX
from tests.conftest import TINY
from tests.launch.conftest import FakeSlurm, complete, steps_of
from tests.patience import HUNG

BIN = Path(sys.executable).parent


def start(run: Run, *overrides: str) -> int:
    cluster = load_cluster("local", list(overrides))
    results = run.runs.parent / "results"
    return launch(run, Path("x.yaml"), [], results, cluster, dry_run=False, wait=False)


def calls(run: Run) -> list[str]:
    return (run.path / "calls.txt").read_text().splitlines()


@pytest.mark.slow
def test_every_stage_runs_once(run: Run, stubs: None, capsys: pytest.CaptureFixture[str]) -> None:
    complete(*steps_of(run, "pretrain")[1:], *steps_of(run, "evaluate")[2:])
    assert start(run, "collect.cpus_per_rank=3", "pretrain.ranks=2") == 0
    assert calls(run)[:2] == ["collect ranks=2 threads=3", "pretrain SAD 0 ranks=2"]
    assert sorted(calls(run)[2:4]) == ["evaluate SAD 0", "evaluate SAD 1"]
    assert calls(run)[4:] == ["aggregate results"]
    assert set(load_records(run)) == {step.title for step in graph(run)} - {
        step.title for step in [*steps_of(run, "pretrain")[1:], *steps_of(run, "evaluate")[2:]]
    }
    assert start(run) == 0
    assert len(calls(run)) == 5
    capsys.readouterr()
    assert show_status(run) == 0
    assert "10 steps: 10 complete" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("pretrain.ranks=3", r"batch_size=64 does not divide over 3 ranks \(cluster.pretrain"),
        ("evaluate.gpus=2", "need 2 GPUs"),
    ],
)
def test_what_a_later_stage_cannot_do_is_said_before_anything_starts(
    run: Run, stubs: None, override: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    with pytest.raises(UserError, match=said):
        start(run, override)
    assert not run.path.exists()
    complete(*steps_of(run, "pretrain"), *steps_of(run, "evaluate"))
    assert start(run, override) == 0


@pytest.mark.parametrize(
    ("variable", "wanted", "names"),
    [(None, 2, ["0", "1"]), ("", 0, []), ("-1", 0, []), ("3, 1,0", 2, ["3", "1"]),
     ("GPU-8f3a,MIG-1", 1, ["GPU-8f3a"])],
)  # fmt: skip
def test_jobs_see_the_gpus_that_the_launcher_sees(
    variable: str | None, wanted: int, names: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if variable is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", variable)
        with pytest.raises(UserError, match="need 4 GPUs, but CUDA_VISIBLE_DEVICES has"):
            visible_gpus(4)
    assert visible_gpus(wanted) == names


@pytest.mark.slow
@pytest.mark.parametrize(
    ("overrides", "at_once"),
    [([], 2), (["array_parallelism=9"], 8), (["array_parallelism=9", "pretrain.ranks=2"], 4),
     (["array_parallelism=9", "pretrain.ranks=3"], 2), (["pretrain.ranks=9"], 1),
     (["pretrain.cpus_per_rank=5"], 1), (["pretrain.gpus=1"], 1),
     (["pretrain.gpus=1", "pretrain.pack=6"], 6), (["pretrain.gpus=1", "pretrain.pack=9"], 8)],
)  # fmt: skip
def test_trainings_share_the_cores(
    overrides: list[str], at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda process: set(range(8)))
    cluster = load_cluster("local", overrides)
    assert jobs_at_once(cluster, "pretrain") == at_once
    assert jobs_at_once(cluster, "collect") == jobs_at_once(cluster, "aggregate") == 1
    assert jobs_at_once(cluster, "evaluate") == cluster.array_parallelism


@pytest.mark.slow
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


@pytest.mark.slow
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
    assert "aggregate not started because evaluate sad-seed0" in printed
    assert show_status(run) == 1
    status = capsys.readouterr().out
    assert "failed (its process ended)" in status and "stuck behind evaluate sad-seed0" in status
    monkeypatch.delenv("STUB_FAILS")
    assert start(run) == 0
    assert calls(run)[1:] == ["evaluate SAD 0", "aggregate results"]


@pytest.mark.slow
def test_what_slurm_still_has_is_not_done_here(run: Run, stubs: None, slurm: FakeSlurm) -> None:
    """Not even where the launcher died before it could record the job."""
    slurm.queue(run_tag(run), j100="RUNNING", j101="PENDING", j102="COMPLETED")
    with pytest.raises(UserError, match=r"--cluster slurm, or `sad-hpc cancel "):
        start(run)
    assert not (run.path / "config.json").exists()
    slurm.queue("another run", j100="RUNNING")
    assert start(run) == 0


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [1, 2])
def test_a_rank_that_is_killed_ends_the_others_and_is_named(
    run: Run,
    stubs: None,
    ranks: int,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A rank is killed as by the kernel when memory is short; rank 0 would wait for an hour."""
    complete(*steps_of(run, "collect"), *steps_of(run, "pretrain")[1:])
    monkeypatch.setenv("STUB_KILLED", str(ranks - 1))
    started = time.monotonic()
    assert start(run, f"pretrain.ranks={ranks}") == 1
    assert time.monotonic() - started < HUNG
    died = f"rank {ranks - 1} of {ranks} was killed by SIGKILL; possibly out of memory"
    assert died in capsys.readouterr().out
    assert show_status(run) == 1
    assert died in capsys.readouterr().out


@pytest.mark.slow
def test_a_rank_of_mpi_that_is_killed_is_reported(
    run: Run, stubs: None, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STUB_KILLED", "1")
    assert start(run) == 1
    assert "a rank was killed by SIGKILL; possibly out of memory" in capsys.readouterr().out


@pytest.mark.slow
def test_no_process_of_a_job_imports_from_the_working_directory(
    run: Run, stubs: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither submitit's controller nor a task of it nor a rank of MPI."""
    (tmp_path / "here").mkdir()
    note = f"import sys; open({str(tmp_path / 'imported')!r}, 'a').write(str(sys.orig_argv))\n"
    (tmp_path / "here/cloudpickle.py").write_text(note + "raise ImportError('not the real one')\n")
    complete(*graph(run)[1:])
    monkeypatch.chdir(tmp_path / "here")
    assert start(run) == 0
    assert not (tmp_path / "imported").exists()
    assert calls(run) == ["collect ranks=2 threads=1", "aggregate results"]


@pytest.mark.slow
def test_ranks_are_given_a_job_of_any_length(run: Run, stubs: None) -> None:
    """Linux allows 128 KiB for one argument."""
    long = run.experiment.model_copy(update={"question": 2**17 * "x"})
    run = Run(long, run.runs)
    complete(*graph(run)[1:])
    assert start(run) == 0
    assert calls(run)[0] == "collect ranks=2 threads=1"


@pytest.mark.slow
def test_a_launch_that_is_interrupted_records_that(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    run.prepare(["test"])
    step = steps_of(run, "collect")[0]
    child = subprocess.Popen(["sleep", "600"])
    job = types.SimpleNamespace(job_id=str(child.pid))
    here = socket.gethostname()
    record = JobRecord(job.job_id, "local", time.time(), str(run.path / "log"), here)
    runner = LocalRunner(run, load_cluster("local", []), run.path)
    runner.running.append(RunningStep(step, job, record))
    runner.end()
    assert child.wait() == -signal.SIGKILL
    assert show_status(run) == 1
    shown = capsys.readouterr().out
    assert "unfinished (its launch was interrupted)" in shown and "failed" not in shown


@pytest.mark.slow
def test_a_failing_rank_ends_the_others(
    run: Run, stubs: None, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STUB_FAILS", "collect")
    assert start(run) == 1
    printed = capsys.readouterr().out
    assert "sad-hpc: error: told to fail" in printed
    assert "pretrain not started because collect" in printed


@pytest.mark.slow
def test_a_marker_that_comes_into_view_meanwhile_is_no_riddle(
    run: Run, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A network file system says at times that a file is not there, and shows it a moment later."""
    complete(*steps_of(run, "collect"))
    answers = itertools.chain([None] * len(steps_of(run, "pretrain")), itertools.repeat({"x": 1}))
    done = property(lambda self: next(answers) if self.stage == "collect" else None)
    monkeypatch.setattr(StageFolder, "done", done)
    LocalRunner(run, load_cluster("local", []), run.path).run_wave(steps_of(run, "pretrain"), 1)
    assert "pretrain not started because collect" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["2>&-", "<&- >&- 2>&-", "2>&1 | true"])
def test_a_launch_that_nobody_listens_to_does_all_its_work(
    tmp_path: Path, stubs: None, ending: str
) -> None:
    settings = "'rows=[SAD]' 'seeds=[0]' cluster.collect.ranks=1"
    folders = f"--runs {tmp_path} --results {tmp_path}/results"
    launch = f"{BIN}/sad-hpc launch {TINY} {settings} {folders}"
    subprocess.run(["bash", "-c", f"set -o pipefail; {launch} {ending}"], timeout=HUNG)
    run = Run(load_experiment(TINY, ["rows=[SAD]", "seeds=[0]"]), tmp_path)
    assert [step.title for step in graph(run) if not step.complete] == []
    assert set(load_records(run)) == {step.title for step in graph(run)}


REPORT = f"{SILENCE_PREFIX}60 s: Zoo-v0 (speed=2), step 17 of the episode of seed 5"


def test_each_report_is_passed_on_once_and_whole(tmp_path: Path):
    log = JobLog(tmp_path / "log")
    assert not list(log.new_reports())
    with (tmp_path / "log").open("a") as file:
        for text, found in [
            (f"a step!\n{REPORT}\n", [REPORT]),
            ("a step!\n", []),
            (REPORT[:30], []),
            (f"{REPORT[30:]}\n", [REPORT]),
            ("a step!\n" * LOG_BYTES + f"{REPORT}\n", [REPORT]),
            ("", []),
        ]:
            file.write(text)
            file.flush()
            assert [f"sad-hpc: {each}" for each in log.new_reports()] == found


def test_a_launch_says_which_job_gets_no_answer(tmp_path: Path, capsys):
    (tmp_path / "log").write_text(f"{REPORT}\n")
    job = types.SimpleNamespace(done=lambda: False)
    record = types.SimpleNamespace(log=str(tmp_path / "log"), submitted=0)
    folder = types.SimpleNamespace(progress_since=lambda moment: None)
    step = types.SimpleNamespace(name="collect", folder=folder)
    running = RunningStep(step, job, record)
    assert running.still_runs() and running.still_runs()
    told = capsys.readouterr().out.splitlines()
    assert [line[9:] for line in told] == [f"collect: {REPORT.removeprefix('sad-hpc: ')}"]
