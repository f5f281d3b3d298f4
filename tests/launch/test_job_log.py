"""Reports of a running job that its launcher prints."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from sad_hpc.launch.job_log import MOST_BYTES, JobLog
from sad_hpc.launch.local import RunningStep
from sad_hpc.user_code import SILENCE_PREFIX

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
            ("a step!\n" * MOST_BYTES + f"{REPORT}\n", [REPORT]),
            ("", []),
        ]:
            file.write(text)
            file.flush()
            assert [f"sad-hpc: {each}" for each in log.new_reports()] == found


def test_a_launch_says_which_job_gets_no_answer(tmp_path: Path, capsys):
    (tmp_path / "log").write_text(f"{REPORT}\n")
    job: Any = SimpleNamespace(done=lambda: False)
    record: Any = SimpleNamespace(log=str(tmp_path / "log"), submitted=0, done_before=0)
    folder = SimpleNamespace(progress_since=lambda moment: None)
    step: Any = SimpleNamespace(name="collect", folder=folder)
    running = RunningStep(step, job, record)
    assert running.still_runs() and running.still_runs()
    told = capsys.readouterr().out.splitlines()
    assert [line[9:] for line in told] == [f"collect: {REPORT.removeprefix('sad-hpc: ')}"]
