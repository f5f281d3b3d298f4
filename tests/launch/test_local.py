"""The whole graph on this machine, with stand-ins for the stages."""

from pathlib import Path

import pytest

from sad_hpc.launch import launch
from sad_hpc.launch.cluster import load_cluster
from sad_hpc.launch.graph import graph
from sad_hpc.launch.records import load_records
from sad_hpc.launch.status import show_status
from sad_hpc.run import Run
from tests.launch.conftest import complete, steps_of


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


def test_a_failing_rank_ends_the_others(
    run: Run, stubs: None, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STUB_FAILS", "collect")
    assert start(run) == 1
    printed = capsys.readouterr().out
    assert "sad-hpc: error: told to fail" in printed
    assert "pretrain not started, since collect" in printed
