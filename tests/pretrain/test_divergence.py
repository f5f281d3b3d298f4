"""Values that are not finite: training refuses to finish, and later stages refuse to use them."""

import json
import math
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sad_hpc.aggregate.training import read_finite_epochs
from sad_hpc.errors import CheckpointError, DivergedError
from sad_hpc.evaluate.stage import evaluate
from sad_hpc.model.finite import RecentSteps, all_finite
from sad_hpc.pretrain import trainer as trainer_module
from sad_hpc.pretrain.checkpoint import Checkpoints
from sad_hpc.pretrain.holdout import Holdout
from sad_hpc.pretrain.rank_sync import MOST_STEPS
from sad_hpc.pretrain.stage import pretrain
from sad_hpc.storage.run import Run
from tests.conftest import TINY, with_data_of
from tests.patience import HUNG

pytestmark = pytest.mark.faults

BIN = Path(sys.executable).parent
NUMBERS = st.floats(width=32) | st.floats(-1e3, 1e3, width=32)


@given(st.lists(st.lists(NUMBERS, max_size=4), max_size=4))
def test_one_entry_that_is_not_finite_is_found(rows: list[list[float]]) -> None:
    expected = all(math.isfinite(entry) for row in rows for entry in row)
    assert all_finite(map(torch.tensor, rows)) == expected


@given(st.lists(st.tuples(NUMBERS, NUMBERS), max_size=6))
def test_losses_and_norms_are_looked_at_together(steps: list[tuple[float, float]]) -> None:
    recent = RecentSteps(torch.device("cpu"))
    for loss, norm in steps:
        recent.add(torch.tensor(loss), torch.tensor(norm))
    assert recent.are_finite() == all(map(math.isfinite, sum(steps, ())))
    recent.add(torch.tensor(3.0), torch.tensor(1.0))
    assert recent.are_finite() and recent.last_loss == 3.0, "the next ones are judged alone"


@pytest.fixture
def run(tiny_run: Run, tmp_path: Path) -> Run:
    return with_data_of(tiny_run, Run(tiny_run.experiment, tmp_path))


@pytest.mark.slow
def test_a_training_that_diverges_fails_on_every_rank(run: Run) -> None:
    stage = [BIN / "sad-hpc", "pretrain", TINY, "pretrain.learning_rate=1e6"]
    done = subprocess.run(
        [BIN / "mpiexec", "-n", "2", *stage, "--runs", run.runs, "--row", "SAD", "--seed", "0"],
        capture_output=True,
        text=True,
        timeout=HUNG,
    )
    assert done.returncode != 0 and "Traceback" not in done.stderr
    steps = re.findall(r"diverged: at step (\d+) and a learning rate of 1e\+06", done.stderr)
    assert len(steps) == 2 and steps[0] == steps[1] and int(steps[0]) <= 1 + MOST_STEPS
    (folder,) = (run.path / "checkpoints").iterdir()
    assert not (folder / "done.json").exists() and not (folder / "weights.pt").exists()
    assert not (folder / "state").exists()


Step = tuple[torch.Tensor, torch.Tensor]


def poisoned(number: int, what: str) -> Callable[..., Step]:
    """`take_step` whose `number`-th step has a loss, gradient or weight that is not finite."""
    real, taken = trainer_module.take_step, []

    def take_step(engine, *others) -> Step:
        loss, norm = real(engine, *others)
        taken.append(others)
        if len(taken) == number and what == "weights":
            next(engine.module.parameters()).data[0] = math.inf
        elif len(taken) == number:
            return (loss * math.nan, norm) if what == "loss" else (loss, norm * math.inf)
        return loss, norm

    return take_step


@pytest.mark.slow
@pytest.mark.parametrize("what", ["loss", "gradient", "weights"])
def test_the_last_finite_checkpoint_stays(
    run: Run, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """8 steps an epoch: the one after the first epoch is saved, the one of the bad step is not."""
    monkeypatch.setattr(trainer_module, "take_step", poisoned(11, what))
    with pytest.raises(DivergedError, match=r"at step 16 .*last finite loss: 1"):
        pretrain(run, "SAD", 0)
    folder = run.checkpoint("SAD", 0)
    assert folder.done is None
    listed = json.loads((folder.path / "state/checkpoints.json").read_text())
    assert [entry["tag"] for entry in listed] == ["step-00000008"]
    monkeypatch.undo()
    pretrain(run, "SAD", 0)
    assert folder.done is not None and math.isfinite(folder.done["holdout_loss"])


def test_a_checkpoint_that_is_not_finite_is_refused(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    save = Checkpoints.save

    def spoil(self: Checkpoints, engine, position) -> None:
        next(engine.module.parameters()).data[0] = math.nan
        save(self, engine, position)
        raise KeyboardInterrupt

    monkeypatch.setattr(Checkpoints, "save", spoil)
    with pytest.raises(KeyboardInterrupt):
        pretrain(run, "SAD", 0)
    monkeypatch.undo()
    with pytest.raises(CheckpointError, match="weights that are not finite"):
        pretrain(run, "SAD", 0)


def test_models_and_metrics_that_are_not_finite_are_refused(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Older versions called such a training complete."""
    monkeypatch.setattr(trainer_module, "take_step", poisoned(16, "weights"))
    monkeypatch.setattr(trainer_module, "all_finite", lambda tensors: True)
    measured = {"holdout_loss": math.nan, "holdout_accuracy": 0.0}
    monkeypatch.setattr(Holdout, "measure", lambda self, engine: measured)
    pretrain(run, "SAD", 0)
    assert run.checkpoint("SAD", 0).done is not None
    with pytest.raises(CheckpointError, match="weights that are not finite"):
        evaluate(run, "SAD", 0)
    with pytest.raises(DivergedError, match=r"metrics.jsonl has losses that are not finite"):
        read_finite_epochs(run.checkpoint("SAD", 0).path)
