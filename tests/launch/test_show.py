"""`sad-hpc show`: what a config means, before anything runs."""

from pathlib import Path

import pytest

from sad_hpc.cli import main
from sad_hpc.experiment import plain_yaml
from sad_hpc.experiment.load import load_experiment, parse_experiment
from sad_hpc.launch.show import shown
from sad_hpc.storage.run import Run
from tests.conftest import TINY

GRID = "rows=[SAD, {method: DPT, grid: {model.heads: [1, 2], pretrain.epochs: [4]}}]"


def test_the_config_is_shown_whole_and_can_be_read_back(tmp_path: Path):
    run = Run(load_experiment(TINY, [GRID]), tmp_path)
    config, _, _ = shown(run).partition("\nrow ")
    assert parse_experiment(plain_yaml.parse(config), "shown") == run.experiment


def test_rows_and_the_work_of_each_stage_are_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    folders = ["--runs", str(tmp_path / "runs"), "--results", str(tmp_path / "results")]
    assert main(["show", str(TINY), GRID, "seeds=[0]", *folders]) == 0
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert "DPT, heads = 2, epochs = 4 DPT model.heads=2, pretrain.epochs=4" in lines
    assert "collect 1 900 tasks in 9 blocks 0 of 1" in lines  # one dataset for all rows
    # 600 training tasks less 64 fill 8 batches of 64.
    pretrain = "pretrain 3 16 steps of 64 contexts; 32 steps of 64 contexts 0 of 3"
    assert pretrain in lines and "evaluate 3 20 test tasks 0 of 3" in lines
    assert not (tmp_path / "runs").exists()


def test_validation_tasks_are_shown_and_make_a_training_shorter(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    overrides = ["rows=[SAD]", "seeds=[0]", "pretrain.validation_tasks=0.5"]
    assert main(["show", str(TINY), *overrides, "--runs", str(tmp_path / "runs")]) == 0
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert "validation_tasks: 0.5" in lines and "keep: last" in lines
    # 600 training tasks less 300 and 64 fill 3 batches of 64.
    assert "pretrain 1 6 steps of 64 contexts 0 of 1" in lines
