"""States of steps, from synthetic folders, records and queues."""

import dataclasses
import os
import socket
import threading
import time
import types
from collections.abc import Callable
from pathlib import Path

import pytest

from sad_hpc.errors import UserError
from sad_hpc.launch.graph import Step, graph
from sad_hpc.launch.records import JobRecord, load_records, save_records
from sad_hpc.launch.slurm import QueueEntry, ask, find_jobs, sacct, squeue
from sad_hpc.launch.status import StepState, show_status, step_states
from sad_hpc.launch.waiting import wait_for_jobs
from sad_hpc.parallel.preemption import Preempted
from sad_hpc.storage.json_files import write_json
from sad_hpc.storage.lock import held
from sad_hpc.storage.progress import Progress, duration, progress_text
from sad_hpc.storage.run import Run
from tests.launch.conftest import FakeSlurm, complete, steps_of
from tests.patience import HUNG


def record(id: str, executor: str = "slurm", age: float = 500) -> JobRecord:
    return JobRecord(id, executor, time.time() - age, f"/logs/{id}_0_log.out", socket.gethostname())


def first(run: Run, *arguments: object) -> StepState:
    return step_states(graph(run), *arguments)[0]  # type: ignore[arg-type]


def test_new_run(run: Run) -> None:
    assert {state.kind for state in step_states(graph(run), {}, {})} == {"not started"}


@pytest.mark.parametrize(
    ("entry", "text"),
    [
        (QueueEntry("PENDING", reason="Resources"), "queued (Resources)"),
        (QueueEntry("PENDING", reason="DependencyNeverSatisfied"), "failed (DependencyNever"),
        (QueueEntry("RUNNING"), "running"),
        (QueueEntry("OUT_OF_MEMORY"), "failed (OUT_OF_MEMORY)"),
        (QueueEntry("NODE_FAIL"), "unfinished (NODE_FAIL)"),
        (QueueEntry("PREEMPTED"), "unfinished (PREEMPTED)"),
        (QueueEntry("COMPLETED", end=1.0), "failed (no completion marker)"),
    ],
)
def test_slurm_states(run: Run, entry: QueueEntry, text: str) -> None:
    title = graph(run)[0].title
    assert first(run, {title: record("5")}, {"5": entry}).text.startswith(text)


def test_a_job_that_has_just_completed_may_still_show_its_marker(run: Run) -> None:
    # The time of the test, not of its collection: the whole suite takes longer than the settling.
    entry = QueueEntry("COMPLETED", end=time.time())
    title = graph(run)[0].title
    assert first(run, {title: record("5")}, {"5": entry}).text == "running (finishing)"


def test_marker_counts_more_than_slurm(run: Run) -> None:
    collect = graph(run)[0]
    complete(collect)
    state = first(run, {collect.title: record("5")}, {"5": QueueEntry("FAILED")})
    assert state.kind == "complete"


def test_a_job_is_not_called_failed_because_slurm_does_not_answer(run: Run) -> None:
    title = graph(run)[0].title
    states = step_states(graph(run), {title: record("5")}, None)
    assert states[0].kind == "submitted"
    assert {state.kind for state in states[1:]} == {"not started"}


def test_job_unknown_to_slurm(run: Run) -> None:
    title = graph(run)[0].title
    assert first(run, {title: record("5")}, {}).text == "failed (the job is gone)"
    assert first(run, {title: record("5", age=1)}, {}).kind == "queued"


def test_heartbeat_without_a_job(run: Run) -> None:
    collect = graph(run)[0]
    collect.folder.prepare({})
    collect.folder.heartbeat(30, 40, "blocks")
    assert first(run, {}, {}).text == "running 75 % 30/40 blocks"
    beat = {**(collect.folder.progress or {}), "time": time.time() - 1000}
    write_json(collect.folder.path / "progress.json", beat)
    assert first(run, {}, {}).text == "failed (stopped at 75 % 30/40 blocks)"


def test_heartbeat_of_a_process_that_is_no_more(run: Run) -> None:
    collect = graph(run)[0]
    collect.folder.prepare({})
    collect.folder.heartbeat(1, 2, "blocks")
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    write_json(
        collect.folder.path / "progress.json", {**(collect.folder.progress or {}), "pid": child}
    )
    assert first(run, {}, {}).kind == "failed"


def test_local_process(run: Run) -> None:
    title = graph(run)[0].title
    alive = record(str(os.getpid()), "local", age=0)
    assert first(run, {title: alive}, {}).kind == "running"
    # The number belongs to a later process by now.
    assert first(run, {title: record(str(os.getpid()), "local", age=1e6)}, {}).kind == "failed"


def test_stuck_steps_name_the_first_failure(run: Run) -> None:
    complete(*steps_of(run, "collect"))
    failed = steps_of(run, "pretrain")[0]
    states = step_states(graph(run), {failed.title: record("6")}, {"6": QueueEntry("TIMEOUT")})
    assert states[5].text == states[9].text == f"stuck behind {failed.title}"
    assert states[6].kind == "not started"


def test_progress() -> None:
    beat = {"done": 900, "total": 2000, "unit": "blocks", "gained": 600, "seconds": 60.0}
    assert progress_text(beat) == "45 % 900/2,000 blocks, 2 min left"
    assert progress_text({**beat, "gained": 0}) == "45 % 900/2,000 blocks"
    assert progress_text(None) == ""
    assert duration(7260) == "2 h 01 min"


def test_an_interrupted_job_may_be_queued_again_in_a_moment(run: Run) -> None:
    records = {graph(run)[0].title: record("6")}
    for age, kind in ((5, "queued"), (500, "unfinished")):
        entry = QueueEntry("NODE_FAIL", end=time.time() - age)
        assert first(run, records, {"6": entry}).kind == kind


def test_a_requeued_job_says_how_often(run: Run) -> None:
    collect = graph(run)[0]
    records = {collect.title: record("6", age=5)}
    collect.folder.prepare({})
    # Of the job before, which is about to end.
    collect.folder.heartbeat(5, 10, "blocks", gained=5, seconds=60)
    for restarts, words in ((0, ""), (1, ", requeued 1 time"), (3, ", requeued 3 times")):
        queued = QueueEntry("PENDING", reason="BeginTime", restarts=restarts)
        assert first(run, records, {"6": queued}).text == f"queued (BeginTime){words}"
        running = QueueEntry("RUNNING", restarts=restarts)
        assert first(run, records, {"6": running}).text.endswith(f"left{words}")


def test_slurm_itself_counts_restarts(run: Run, slurm: FakeSlurm) -> None:
    steps = steps_of(run, "pretrain")[:2]
    ids = ("12", "13_0")
    save_records(run, {step.title: record(id) for step, id in zip(steps, ids, strict=True)})
    slurm._program(
        "squeue",
        'case "$*" in\n'
        '*RestartCnt*) echo "12     2  "; echo "13_0  0"; echo "14 (null)" ;;\n'
        '*) echo "12|PENDING|N/A|N/A|x|None"; echo "13_0|PENDING|N/A|N/A|x|None" ;;\n'
        "esac",
    )
    jobs = ask(run, steps, load_records(run)).jobs
    assert {id: entry.restarts for id, entry in jobs.items()} == {"12": 2, "13_0": 0}


def test_clusters_may_have_jobs_with_the_same_id(run: Run, slurm: FakeSlurm) -> None:
    complete(*steps_of(run, "collect"))
    steps, clusters = steps_of(run, "pretrain"), ["alpha", "beta", None]
    jobs = [dataclasses.replace(record("12"), cluster=cluster) for cluster in clusters]
    records = {step.title: job for step, job in zip(steps[:3], jobs, strict=True)}
    slurm._program(
        "squeue",
        'case "$*" in *RestartCnt*) exit ;; *=alpha*) state=RUNNING ;; *=beta*) state=FAILED ;;\n'
        "*) state=PENDING ;; esac\n"
        'echo "12|$state|N/A|N/A|x|None"',
    )
    states = step_states(graph(run), records, ask(run, graph(run), records).jobs)
    shown = {state.step.title: state.text for state in states}
    assert [shown[title] for title in records] == ["running", "failed (FAILED)", "queued"]


def test_a_job_that_is_going_has_no_time_left(run: Run) -> None:
    collect = graph(run)[0]
    records = {collect.title: record("6", age=50)}
    collect.folder.prepare({})
    collect.folder.heartbeat(5, 10, "blocks")
    assert first(run, records, {"6": QueueEntry("COMPLETING")}).text == "running (ending)"


def test_status_sees_a_cancelled_job_within_seconds(
    run: Run, slurm: FakeSlurm, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run.prepare(["test"])
    step = steps_of(run, "collect")[0]
    save_records(run, {step.title: log_record(run, step)})
    slurm.queue(j12="RUNNING")
    assert show_status(run) == 0
    slurm.queue(j12="CANCELLED")
    clock = types.SimpleNamespace(time=lambda: time.time() + 15)
    monkeypatch.setattr("sad_hpc.launch.slurm.time", clock)
    assert show_status(run) == 1
    assert "failed (CANCELLED)" in capsys.readouterr().out


def test_an_interrupted_launch_has_not_failed(run: Run) -> None:
    title = graph(run)[0].title
    ended = record("4194305", "local")  # above the kernel's largest process id
    assert first(run, {title: ended}, {}).text == "failed (its process ended)"
    interrupted = dataclasses.replace(ended, interrupted=True)
    state = first(run, {title: interrupted}, {})
    assert state.text == "unfinished (its launch was interrupted)"


@pytest.mark.parametrize("end", [KeyboardInterrupt(), Preempted("stopped by SIGTERM", False)])
def test_a_stage_that_was_stopped_by_hand_has_not_failed(run: Run, end: BaseException) -> None:
    collect = graph(run)[0]
    with pytest.raises(type(end)), run.writing(collect.folder, {}):
        collect.folder.heartbeat(30, 40, "blocks")
        raise end
    assert first(run, {}, {}).text == "unfinished (stopped at 75 % 30/40 blocks)"
    with run.writing(collect.folder, {}):
        collect.folder.heartbeat(31, 40, "blocks")
        assert first(run, {}, {}).kind == "running"


def test_the_time_left_counts_the_work_of_this_start_alone(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    collect = graph(run)[0]
    collect.folder.prepare({})
    now = time.monotonic()
    monkeypatch.setattr("sad_hpc.storage.progress.time.monotonic", lambda: now)
    progress = Progress(collect.folder, 40, "blocks", done=20)
    now += 50
    progress.update(30)
    text = first(run, {collect.title: record("6", age=5000)}, {"6": QueueEntry("RUNNING")}).text
    assert text == "running 75 % 30/40 blocks, 50 s left"


def test_compiling_is_shown_beside_the_count(run: Run) -> None:
    collect = graph(run)[0]
    collect.folder.prepare({})
    with Progress(collect.folder, 40, "blocks") as progress:
        progress.say("compiling")
        assert first(run, {}, {}).text == "running 0 % 0/40 blocks, compiling"
    collect.folder.heartbeat(1, 40, "blocks")
    assert "compiling" not in first(run, {}, {}).text


def test_status_text(
    run: Run, slurm: FakeSlurm, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(run.runs.parent)
    run.prepare(["test"])
    collect, pretrain = steps_of(run, "collect")[0], steps_of(run, "pretrain")[0]
    complete(collect)
    save_records(run, {pretrain.title: log_record(run, pretrain)})
    slurm.queue(j12="RUNNING")
    pretrain.folder.prepare({})
    pretrain.folder.heartbeat(5, 10, "steps")
    assert show_status(run) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == [*collect.title.split(), "complete"]
    assert "running 50 % 5/10 steps" in lines[1]
    assert lines[1].endswith("job 12  runs/made-up/logs/pretrain/12_0_log.out")
    assert lines[-1] == "10 steps: 1 complete, 1 running, 8 not started"


def test_steps_of_kept_results_are_not_needed(run: Run) -> None:
    aggregate = steps_of(run, "aggregate")[0]
    states = step_states(graph(run), {}, {})
    assert {state.text for state in states} == {"not started"}
    complete(aggregate)
    states = step_states(graph(run), {}, {})
    assert {state.text for state in states[:-1]} == {"not needed"}
    assert states[-1].text == "complete"


def log_record(run: Run, step: Step) -> JobRecord:
    log = str(run.logs / step.stage / "12_0_log.out")
    return JobRecord("12", "slurm", time.time() - 60, log, "node")


def test_status_goes_on_without_slurm(
    run: Run, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run.prepare(["test"])
    step = steps_of(run, "collect")[0]
    save_records(run, {step.title: log_record(run, step)})
    monkeypatch.setenv("PATH", "/nowhere")
    show_status(run)
    assert "states without Slurm's answer: squeue is not on the PATH" in capsys.readouterr().out


def test_slurm_is_asked_at_most_once_in_30_seconds(
    run: Run, slurm: FakeSlurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps, records = graph(run), {graph(run)[0].title: record("12")}
    slurm.queue(j12="RUNNING")
    assert ask(run, steps, records).jobs["12"].state == "RUNNING"
    slurm.queue(j12="FAILED")
    assert ask(run, steps, records).jobs["12"].state == "RUNNING", "asked again"
    (run.path / ".slurm.json").write_text('{"asked": "yesterday"}')
    assert ask(run, steps, records).jobs["12"].state == "FAILED"
    slurm.queue()
    monkeypatch.setattr("sad_hpc.launch.slurm.ASK_SECONDS", 0.0)
    assert ask(run, steps, records).jobs == {}


def test_silent_slurm_is_left_alone_too(run: Run, slurm: FakeSlurm) -> None:
    steps, records = graph(run), {graph(run)[0].title: record("12")}
    slurm._program("squeue", "echo dead >&2; exit 1")
    assert "dead" in ask(run, steps, records).error
    slurm.queue(j12="RUNNING")
    assert "dead" in ask(run, steps, records).error


def test_status_of_another_folder(tmp_path: Path, run: Run) -> None:
    with pytest.raises(UserError, match="not a run's folder"):
        Run.of_folder(tmp_path)
    run.prepare(["test"])
    run.path.rename(run.runs / "other")
    with pytest.raises(UserError, match="rename the folder to made-up"):
        Run.of_folder(run.runs / "other")


def test_queue_programs(slurm: FakeSlurm) -> None:
    (slurm.folder / "queue").write_text(
        "12_3|PENDING|N/A|N/A|ours|(null) a|b\n13|RUNNING|N/A|N/A|a\nb|None\n"
    )
    assert squeue() == {"12_3": QueueEntry("PENDING", None, None, "(null) a|b", "ours")}
    slurm._program("squeue", 'case "$*" in *--all*) echo "14|RESV_DEL_HOLD|N/A|N/A|a|None" ;; esac')
    assert squeue()["14"].is_waiting, "also in a hidden partition"
    assert sacct(["12"]) == {}  # no accounting
    slurm._program(
        "sacct",
        "echo '12_3|CANCELLED by 0|2024-01-01T00:00:00|Unknown'; echo '12_4|FAILED|None|None'",
    )
    entry = sacct(["12_3"])["12_3"]
    assert (entry.state, entry.end, entry.is_active) == ("CANCELLED", None, False)


def test_accounting_answers_while_the_controller_is_down(slurm: FakeSlurm) -> None:
    slurm._program("squeue", "echo dead >&2; exit 1")
    with pytest.raises(UserError, match="dead"):
        find_jobs(["12"])
    slurm._program("sacct", "echo '12|RUNNING|2024-01-01T00:00:00|Unknown'")
    assert find_jobs(["12"])["12"].state == "RUNNING"
    with pytest.raises(UserError, match="dead"):  # it calls waiting elements of an array 13_[0-3]
        find_jobs(["12", "13_0"])


def sleep_with(look: Callable[[float], None], monkeypatch: pytest.MonkeyPatch) -> None:
    """Only where `wait` sleeps: subprocess does it, too, on a busy machine."""
    clock = types.SimpleNamespace(sleep=look, strftime=time.strftime)
    monkeypatch.setattr("sad_hpc.launch.waiting.time", clock)


def test_waiting_goes_on_until_slurm_has_answered(
    run: Run, slurm: FakeSlurm, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    steps, looks = graph(run), []
    save_records(run, {step.title: log_record(run, step) for step in steps})
    slurm._program("squeue", "echo dead >&2; exit 1")
    monkeypatch.setattr("sad_hpc.launch.slurm.ASK_SECONDS", 0.0)

    def look(seconds: float) -> None:
        looks.append(seconds)
        complete(steps[len(looks) - 1])

    sleep_with(look, monkeypatch)
    assert wait_for_jobs(run, steps)
    assert len(looks) == len(steps)
    assert "still waiting, although squeue failed: dead" in capsys.readouterr().out


def test_waiting_follows_another_launch(
    run: Run, slurm: FakeSlurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = graph(run)
    training = steps_of(run, "pretrain")[0]
    complete(*[step for step in steps if step.stage in ("collect", "pretrain")][:-3])
    save_records(run, {step.title: record("12") for step in steps})
    slurm.queue(j12="RUNNING")
    monkeypatch.setattr("sad_hpc.launch.slurm.ASK_SECONDS", 0.0)
    looks = []

    def look(seconds: float) -> None:
        looks.append(seconds)
        if len(looks) == 1:  # the job was cancelled, and another launch has submitted it again
            save_records(run, {step.title: record("13") for step in steps})
            slurm.queue(j13="RUNNING")
        else:
            complete(*steps)

    sleep_with(look, monkeypatch)
    assert wait_for_jobs(run, steps) and len(looks) == 2
    assert training.complete


def test_waiting_bears_with_a_launch_that_is_submitting(
    run: Run, slurm: FakeSlurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = graph(run)
    save_records(run, {step.title: record("12") for step in steps})
    slurm.queue(j12="CANCELLED")
    monkeypatch.setattr("sad_hpc.launch.slurm.ASK_SECONDS", 0.0)
    holds = threading.Event()

    def submit() -> None:
        with held(run.path):
            holds.set()
            time.sleep(1)
            save_records(run, {step.title: record("13") for step in steps})
            slurm.queue(j13="RUNNING")

    sleep_with(lambda _: complete(*steps), monkeypatch)
    other = threading.Thread(target=submit)
    other.start()
    assert holds.wait(HUNG)
    assert wait_for_jobs(run, steps)
    other.join()


def test_status_shows_the_end_of_a_failed_steps_log(
    run: Run, slurm: FakeSlurm, capsys: pytest.CaptureFixture[str]
) -> None:
    run.prepare(["test"])
    failed = steps_of(run, "pretrain")[:2]
    save_records(run, {step.title: log_record(run, step) for step in failed})
    log = Path(log_record(run, failed[0]).log)
    log.parent.mkdir(parents=True)
    log.write_text("step 1\nsad-hpc: error: no space\n")
    slurm.queue(j12="FAILED")
    assert show_status(run) == 1
    assert "sad-hpc: error: no space" in capsys.readouterr().out


def test_failing_rank_is_shown(tmp_path: Path) -> None:
    for rank, text in enumerate(["waiting\n", "sad-hpc: error: no space\n"]):
        (tmp_path / f"8_{rank}_log.out").write_text(text)
    job = JobRecord("8", "slurm", 0.0, str(tmp_path / "8_0_log.out"), "node")
    assert job.log_tail() == f"{tmp_path}/8_1_log.out:\nsad-hpc: error: no space"


def test_a_comment_in_another_encoding_hides_no_job(slurm: FakeSlurm) -> None:
    (slurm.folder / "queue").write_bytes(
        b"12|PENDING|N/A|N/A|caf\xe9|JobHeldUser\n13|RUNNING|N/A|N/A|ours|None\n"
    )
    queue = squeue()
    assert queue["12"].state == "PENDING" and queue["13"].comment == "ours"


NEVER = """BadConstraints PartitionConfig PartitionNodeLimit PartitionTimeLimit AccountNotAllowed
QOSNotAllowed InvalidAccount InvalidQOS ReservationDeleted AssocMaxCpuPerJobLimit
AssocMaxWallDurationPerJobLimit AssocMaxGRESPerJob AssocMaxMemPerNode QOSMaxNodePerJobLimit
QOSMaxMemoryPerNode QOSMaxCpuMinutesPerJobLimit QOSMinCpuNotSatisfied QOSMinMemory MaxMemPerLimit
JobHeldUser JobHeldAdmin JobHoldMaxRequeue launch_failed_requeued_held"""
LATER = """None Priority Resources Dependency BeginTime JobArrayTaskLimit Licenses Reservation
Prolog PartitionDown PartitionInactive QOSMaxJobsPerUserLimit QOSMaxCpuPerUserLimit
QOSMaxNodePerUserLimit QOSMaxGRESPerUser AssocMaxJobsLimit AssocGrpCpuLimit
AssocGrpCPURunMinutesLimit QOSGrpNodeLimit MaxCpuPerAccount
ReqNodeNotAvail,_UnavailableNodes:node1"""


def test_reasons_that_no_waiting_helps_are_told_from_those_that_pass(run: Run) -> None:
    title = graph(run)[0].title
    for reasons, kind in ((NEVER, "blocked"), (LATER, "queued")):
        for reason in reasons.split():
            entry = QueueEntry("PENDING", reason=reason)
            shown = "" if reason == "None" else f" ({reason})"
            assert first(run, {title: record("5")}, {"5": entry}).text == f"{kind}{shown}"
    assert not QueueEntry("RUNNING", reason="BadConstraints").is_blocked
    for reason in ("Reservation night was deleted", "job requeued in held state"):
        assert QueueEntry("PENDING", reason=reason).is_blocked


def test_why_jobs_wait_is_said_once(
    run: Run, slurm: FakeSlurm, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run.prepare(["test"])
    complete(*steps_of(run, "collect"))
    waiting, ids = steps_of(run, "pretrain"), ["21", "22", "23", "24"]
    save_records(run, {s.title: record(id) for s, id in zip(waiting, ids, strict=True)})
    reasons = ["PartitionConfig", "PartitionConfig", "AssocGrpCpuLimit", "AssocGrpCpuLimit"]
    lines = [f"{i}|PENDING|N/A|N/A|x|{why}\n" for i, why in zip(ids, reasons, strict=True)]
    (slurm.folder / "queue").write_text("".join(lines))
    show_status(run)
    status = capsys.readouterr().out
    assert "1 complete, 2 blocked, 2 queued" in status
    assert "launch again with other cluster settings, which replaces them" in status

    def look(seconds: float) -> None:
        complete(*[step for step in graph(run) if not step.complete])

    sleep_with(look, monkeypatch)
    assert wait_for_jobs(run, graph(run))
    printed = capsys.readouterr().out
    assert printed.count("blocked (PartitionConfig)") == 1
    assert printed.count("queued (AssocGrpCpuLimit)") == 1
    assert printed.count("which replaces them") == 1


def test_a_job_that_hangs_shows_the_age_of_its_heartbeat(run: Run) -> None:
    collect = graph(run)[0]
    records, jobs = {collect.title: record("6")}, {"6": QueueEntry("RUNNING")}
    collect.folder.prepare({})
    collect.folder.heartbeat(30, 40, "blocks")
    assert "no heartbeat" not in first(run, records, jobs).text
    beat = {**(collect.folder.progress or {}), "time": time.time() - 400}
    write_json(collect.folder.path / "progress.json", beat)
    assert first(run, records, jobs).text.endswith("no heartbeat for 7 min")
