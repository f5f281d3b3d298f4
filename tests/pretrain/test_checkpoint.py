"""Intact checkpoints of another model: an error in one line on every rank."""

from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch

from sad_hpc.errors import CheckpointError
from sad_hpc.pretrain import checkpoint
from sad_hpc.pretrain.checkpoint import Checkpoints
from sad_hpc.storage.json_files import write_json


@pytest.fixture
def saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Checkpoints:
    """A list of checkpoints with a newest one."""
    monkeypatch.setattr(checkpoint, "on_first_rank", lambda work: work())
    entry = {"tag": "step-00000003", "signature": "s", "world_size": 1, "precision": "fp32"}
    write_json(tmp_path / "state/checkpoints.json", [entry | {"files": {}}])
    return Checkpoints(tmp_path, "s", 1)


def engine(answer: Any) -> mock.Mock:
    """One whose load has this outcome."""
    made = mock.Mock(module=torch.nn.Linear(2, 1))
    made.zero_optimization_stage.return_value = 0
    made.load_checkpoint.side_effect = [answer]
    return made


POSITION = {"step": 3, "loss_sum": 0.5}
MISFITS = [
    RuntimeError("Error(s) in loading state_dict:\n" + "\tsize mismatch\n" * 40),
    KeyError("module"),
    AttributeError("'int' object has no attribute 'items'"),
    ("", None),
    ("", {}),
    ("", {"position": 7}),
    ("", {"position": POSITION | {"step": -1}}),
    ("", {"position": POSITION | {"loss_sum": "x"}}),
    ("", {"position": POSITION | {"best": {"metrics": {}, "weights": [1.0]}}}),
    ("", {"position": POSITION | {"best": {"metrics": {"epoch": "x"}, "weights": torch.ones(1)}}}),
]


@pytest.mark.parametrize("answer", MISFITS)
def test_a_checkpoint_that_does_not_fit_is_one_line(
    saved: Checkpoints, monkeypatch: pytest.MonkeyPatch, answer: Any
) -> None:
    monkeypatch.setattr(checkpoint, "precision_of", lambda engine: "fp32")
    with pytest.raises(CheckpointError, match="does not fit the model or its training") as raised:
        saved.load(engine(answer))
    assert "\n" not in str(raised.value)
    assert saved.load(engine(("", {"position": POSITION}))) == POSITION | {"best": None}


@pytest.mark.parametrize(
    ("key", "value"),
    [("tag", "../../x"), ("tag", 7), ("files", {"x": 1}), ("files", []), ("world_size", "two")],
)
def test_an_entry_of_other_types_counts_as_absent(
    saved: Checkpoints, tmp_path: Path, key: str, value: Any
) -> None:
    entry = {"tag": "step-3", "signature": "s", "world_size": 1, "precision": "fp32", "files": {}}
    write_json(tmp_path / "state/checkpoints.json", [entry | {key: value}])
    assert saved.newest(zero_stage=0, precision="fp32") is None
