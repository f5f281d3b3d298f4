import io
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from sad_hpc.cli import main
from sad_hpc.commands import COMMANDS
from sad_hpc.errors import UserError
from sad_hpc.evaluate import stage as evaluate_stage
from sad_hpc.experiment.load import load_experiment
from sad_hpc.launch.srun import srun_options
from sad_hpc.parser import EXAMPLES
from sad_hpc.storage.run import Run
from tests.conftest import ROOT, TINY

BIN = Path(sys.executable).parent


@pytest.mark.parametrize("command", sorted(EXAMPLES))
def test_every_command_has_help_with_an_example_that_parses(command: str, capsys):
    with pytest.raises(SystemExit) as ended:
        main([command, "--help"])
    assert ended.value.code == 0
    assert f"sad-hpc {command}" in capsys.readouterr().out.split("example:")[1]


@pytest.mark.parametrize("command", sorted(EXAMPLES))
def test_examples_name_files_that_exist(command: str):
    for word in EXAMPLES[command].split():
        if word.startswith("configs/"):
            assert (ROOT / word).is_file(), word


def test_no_command_prints_help(capsys):
    assert main([]) == 2
    assert "COMMAND" in capsys.readouterr().out


def test_help_lists_every_command_once_after_an_example(capsys):
    with pytest.raises(SystemExit):
        main(["--help"])
    example, *groups = capsys.readouterr().out.split("\nexample:\n")[1].split(":\n  ")
    assert example.startswith("  sad-hpc launch")
    listed = re.findall(r"^  ([a-z]+) ", "\n".join(f"  {group}" for group in groups), re.M)
    assert sorted(listed) == sorted([*EXAMPLES, "theory"])


def test_version(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert re.fullmatch(r"sad-hpc \d+\.\d+\.\d+\n", capsys.readouterr().out)


def test_a_script_of_slurm_starts_ranks_as_the_launcher_does(tmp_path: Path, monkeypatch):
    (tmp_path / "srun").write_text('#!/bin/sh\necho "$@"; echo $OMP_NUM_THREADS\n')
    (tmp_path / "srun").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    started = {"SLURM_JOB_ID": "7", "SLURM_CPUS_PER_TASK": "3", "SLURM_GPUS_PER_TASK": "1"}
    command = [BIN / "sad-hpc", "ranks", "pretrain", "x.yaml", "--row", "SAD", "a=1"]
    told = subprocess.check_output(command, env=os.environ | started, text=True)
    assert told.startswith(" ".join(srun_options("pretrain", 3, 1, "pmi2")))
    assert told.endswith("sad-hpc pretrain x.yaml --row SAD a=1\n3\n")


def test_ranks_outside_a_job_say_so(capsys):
    assert main(["ranks", "collect", "x.yaml"]) == 1
    assert "needs a Slurm batch job" in capsys.readouterr().err


def test_an_error_is_one_line_without_traceback(tmp_path: Path):
    done = subprocess.run(
        [BIN / "sad-hpc", "collect", TINY, "--runs", tmp_path, "data.taskz=3"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("sad-hpc: error: ") and "did you mean 'tasks'" in line
    assert not list(tmp_path.iterdir())


def test_debug_shows_the_traceback(capsys):
    assert main(["collect", str(TINY), "--debug", "data.taskz=3"]) == 1
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["--seed", "7"], "seeds 0, 1"),
        (["--row", "AD"], "rows SAD; DPT"),
        (["--element", "4"], "0 to 3"),
        (["--element", "3", "--of", "3"], "0 <= K < 3"),
        (["--of", "3"], "0 <= K < 3"),
    ],
)
def test_an_element_that_is_not_in_the_config_is_named(arguments: list[str], words: str, capsys):
    assert main(["pretrain", str(TINY), *arguments]) == 1
    assert words in capsys.readouterr().err


@pytest.mark.parametrize("jobs", [1, 3, 4, 20])
def test_an_array_of_any_size_evaluates_every_element_once(jobs: int, monkeypatch):
    evaluated: list[tuple[str, int]] = []
    monkeypatch.setattr(
        evaluate_stage, "evaluate", lambda _, *row_and_seed: evaluated.append(row_and_seed)
    )
    for job in range(jobs):
        assert main(["evaluate", str(TINY), "--element", str(job), "--of", str(jobs)]) == 0
    assert sorted(evaluated) == sorted(load_experiment(TINY).elements)


def test_an_evaluation_that_fails_does_not_take_others_with_it(monkeypatch, capsys):
    evaluated: list[tuple[str, int]] = []

    def evaluate(_, method: str, seed: int) -> None:
        if (method, seed) == ("SAD", 0):
            raise UserError("no model of SAD, seed 0")
        evaluated.append((method, seed))

    monkeypatch.setattr(evaluate_stage, "evaluate", evaluate)
    assert main(["evaluate", str(TINY)]) == 1
    assert evaluated == [("SAD", 1), ("DPT", 0), ("DPT", 1)]
    assert capsys.readouterr().err == "sad-hpc: error: no model of SAD, seed 0\n"


def test_a_terminal_without_a_sign_gets_its_escape(tmp_path: Path, monkeypatch):
    printed = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", printed)
    monkeypatch.setattr("sad_hpc.aggregate.overview.overview", lambda _: "26.77 ± 0.96")
    assert main(["report", "--results", str(tmp_path)]) == 0
    printed.seek(0)
    assert printed.read() == "all experiments: 26.77 \\xb1 0.96\n"


def test_words_that_are_no_overrides_are_refused(capsys):
    with pytest.raises(SystemExit):
        main(["verify", "somewhere", "--colour"])
    assert "--colour" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("command", "words", "advice"),
    [
        ("launch", ["--data.trust_horizon=5"], "write data.trust_horizon=5"),
        ("collect", ["--data.trust_horizon", "5"], "write data.trust_horizon=VALUE"),
        ("pretrain", ["--rows=[SAD, DPT*]"], "write 'rows=[SAD, DPT*]'"),
        ("launch", ["-name=trial"], "write name=trial"),
        ("status", ["--pretrain.epochs=1"], "write pretrain.epochs=1"),
        ("doctor", ["--cluster.partition=cpu"], "write cluster.partition=cpu"),
        ("launch", ["--colour=5"], ""),
        ("verify", ["--data.tasks=5"], ""),
    ],
)
def test_a_setting_with_dashes_is_shown_without(
    command: str, words: list[str], advice: str, capsys
):
    with pytest.raises(SystemExit) as ended:
        main([command, str(TINY), *words])
    error = capsys.readouterr().err
    assert ended.value.code == 2
    assert f"unrecognized arguments: {words[0]}" in error
    assert advice in error and ("dashes" in error) == bool(advice)


@pytest.mark.parametrize(
    "command", ["launch", "collect", "aggregate", "import", "status", "export"]
)
def test_a_command_without_arguments_asks_for_no_settings(command: str, capsys):
    with pytest.raises(SystemExit):
        main([command])
    asked = capsys.readouterr().err.splitlines()[-1]
    assert "CONFIG" in asked and "key.sub=value" not in asked


def test_settings_of_one_command_line_do_not_reach_the_next(monkeypatch):
    seen: list[list[str]] = []
    monkeypatch.setitem(COMMANDS, "collect", lambda options: seen.append(options.overrides) or 0)
    for words in (["--runs", "a", "seeds=[1]"], []):
        assert main(["collect", str(TINY), *words]) == 0
    assert seen == [["seeds=[1]"], []]


def test_a_stage_that_is_complete_says_so(tiny_run: Run, tmp_path: Path, capfd):
    assert main(["collect", str(TINY), "--runs", str(tiny_run.runs)]) == 0
    assert f"{tiny_run.data().title}: complete, nothing to do" in capfd.readouterr().err
    run = Run(tiny_run.experiment, tmp_path)
    stages = {"pretrain": run.checkpoint("SAD", 0), "evaluate": run.evaluation("SAD", 0)}
    configs = run.experiment.pretrain_config("SAD", 0), run.experiment.evaluate_config("SAD", 0)
    for (stage, folder), config in zip(stages.items(), configs, strict=True):
        folder.prepare(config)
        folder.complete()
        options = ["--runs", str(tmp_path), "--row", "SAD", "--seed", "0"]
        assert main([stage, str(TINY), *options]) == 0
        assert f"{folder.title}: complete, nothing to do" in capfd.readouterr().err


def test_missing_evaluations_are_named(tmp_path: Path, capsys):
    assert main(["aggregate", str(TINY), "--runs", str(tmp_path)]) == 1
    error = capsys.readouterr().err
    assert "SAD" in error and "DPT" in error and "sad-hpc" in error


def test_output_that_nobody_reads_to_its_end_is_no_error(tiny_run: Run):
    command = f"{BIN}/sad-hpc inspect {tiny_run.path} | true; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
