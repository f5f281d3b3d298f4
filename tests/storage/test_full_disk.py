"""A full disk in every stage: an error that names the file, and old files are kept."""

import errno
import os
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import pytest
import torch

from sad_hpc.aggregate.stage import aggregate
from sad_hpc.collect.stage import collect
from sad_hpc.dataset.schema import Manifest
from sad_hpc.dataset.verify import verify
from sad_hpc.errors import UserError
from sad_hpc.evaluate.stage import evaluate
from sad_hpc.experiment.load import load_experiment
from sad_hpc.pretrain import checkpoint
from sad_hpc.pretrain.checkpoint import Checkpoints
from sad_hpc.pretrain.stage import pretrain
from sad_hpc.storage.json_files import write_json
from sad_hpc.storage.run import Run
from tests.conftest import TINY, with_data_of

pytestmark = pytest.mark.faults

Disk = tuple[Path, Callable[[str], None]]


def one_line(error: pytest.ExceptionInfo[UserError]) -> str:
    assert "\n" not in str(error.value)
    return str(error.value)


def test_no_half_file_is_left(small_disk: Disk) -> None:
    disk, _ = small_disk
    with pytest.raises(UserError, match=r"No space left .*500,\d{3} bytes are needed, ") as caught:
        write_json(disk / "big.json", "x" * 500_000)
    assert "big.json" in one_line(caught)
    assert os.listdir(disk) == []
    write_json(disk / "small.json", "x")


def test_collection_keeps_the_shards_that_fit_and_makes_the_others_later(
    small_disk: Disk, tmp_path: Path
) -> None:
    disk, resize = small_disk
    experiment = load_experiment(TINY, ["data.tasks=9000", "data.block_tasks=200"])
    run = Run(experiment, disk)
    with pytest.raises(UserError, match=r"cannot write.*No space left.* needed, ") as caught:
        collect(run)
    assert "shard-" in one_line(caught)
    train = run.data().path / "train"
    assert not [name for name in os.listdir(train) if name.endswith(".tmp")]
    if (train / "manifest.json").exists():
        assert Manifest.load(train).shards
        assert "shards" in verify(train).faults[0]
    resize("64m")
    collect(run)
    undisturbed = Run(experiment, tmp_path / "undisturbed")
    collect(undisturbed)
    other = undisturbed.data().path / "train"
    assert Manifest.load(train).digest == Manifest.load(other).digest


@pytest.mark.slow
def test_training_keeps_its_last_checkpoint_and_goes_on_from_it(
    tiny_run: Run, small_disk: Disk, tmp_path: Path
) -> None:
    disk, resize = small_disk
    overrides = ["pretrain.epochs=4", "pretrain.batch_size=16"]
    struck, calm = (
        with_data_of(tiny_run, Run(load_experiment(TINY, overrides), folder))
        for folder in (disk, tmp_path / "calm")
    )
    resize("500k")  # two checkpoints, of which each epoch saves one, and not a third
    said = r"cannot write .*step-.*No space left.* needed, "
    with pytest.raises(UserError, match=said) as caught:
        pretrain(struck, "SAD", 0)
    one_line(caught)
    folder = struck.checkpoint("SAD", 0)
    signature = struck.experiment.pretrain_signature("SAD", 0)
    assert folder.done is None
    assert Checkpoints(folder.path, signature, 1).newest(zero_stage=0, precision="fp32")
    resize("64m")
    pretrain(struck, "SAD", 0)
    pretrain(calm, "SAD", 0)
    weights = [
        torch.load(run.checkpoint("SAD", 0).path / "weights.pt", weights_only=True)["state"]
        for run in (struck, calm)
    ]
    for name, weight in weights[0].items():
        assert torch.equal(weight, weights[1][name]), name


def test_a_quota_is_told_from_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """torch says of either that it could not write; few kernels give a test a quota of its own."""
    refusal = OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))
    monkeypatch.setattr(os, "posix_fallocate", mock.Mock(side_effect=refusal))
    monkeypatch.setattr(checkpoint, "on_first_rank", lambda work: work())
    engine = mock.Mock(module=torch.nn.Linear(1000, 1))
    engine.save_checkpoint.side_effect = RuntimeError("[enforce fail at inline_container.cc]")
    with pytest.raises(UserError, match=r"Disk quota exceeded \(12,012 bytes are needed") as caught:
        Checkpoints(tmp_path, "0", 1).save(engine, {"step": 7})
    assert "free space" in one_line(caught) and os.listdir(tmp_path / "state") == []


@pytest.mark.slow
def test_tables_are_made_once_there_is_space(
    tiny_run: Run, small_disk: Disk, tmp_path: Path
) -> None:
    disk, resize = small_disk
    experiment = load_experiment(TINY, ["rows=[SAD]", "seeds=[0]"])
    run = with_data_of(tiny_run, Run(experiment, tmp_path / "runs"))
    pretrain(run, "SAD", 0)
    evaluate(run, "SAD", 0)
    resize("40k")
    with pytest.raises(UserError, match=r"cannot write .*No space left") as caught:
        aggregate(run, disk)
    one_line(caught)
    assert run.aggregate().done is None
    assert not [path for path in disk.rglob("*") if path.suffix in (".tmp", ".csv", ".h5")]
    resize("64m")
    aggregate(run, disk)
    aggregate(run, tmp_path / "results")
    tables = [folder / "tiny/summary.csv" for folder in (disk, tmp_path / "results")]
    assert tables[0].read_bytes() == tables[1].read_bytes()
