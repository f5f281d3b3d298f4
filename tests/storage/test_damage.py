"""Flipped bits and truncation of every kind of file: detected, or without effect."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sad_hpc.dataset.reader import load_complete, read_columns
from sad_hpc.errors import UserError
from sad_hpc.evaluate.policy import load_model
from sad_hpc.evaluate.result_file import read_result
from sad_hpc.evaluate.stage import evaluate
from sad_hpc.pretrain.checkpoint import Checkpoints
from sad_hpc.pretrain.stage import pretrain
from sad_hpc.storage.run import Run

pytestmark = pytest.mark.faults

COLUMNS = [
    "transitions/rewards",
    "labels/sad/query_states",
    "labels/sad/actions",
    "tasks/parameters",
]


@pytest.fixture(scope="module")
def finished(tiny_run: Run, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run with a dataset, two checkpoints, weights and a result."""
    run = Run(tiny_run.experiment, tmp_path_factory.mktemp("runs"))
    run.path.mkdir()
    shutil.copytree(tiny_run.path / "data", run.path / "data")
    pretrain(run, "SAD", 0)
    evaluate(run, "SAD", 0)
    return run


def dataset(run: Run) -> list[Any]:
    folder, experiment = run.data().path / "train", run.experiment
    manifest = load_complete(folder, experiment.data_signature(), experiment.data_config())
    columns = read_columns(folder, manifest, COLUMNS)
    return [columns[name] for name in COLUMNS] + [manifest.steps, manifest.n_tasks]


def checkpoint(run: Run) -> list[Any]:
    """Return the state that training continues from: the newest whole checkpoint, if any."""
    folder = run.checkpoint("SAD", 0).path
    signature = run.experiment.pretrain_signature("SAD", 0)
    tag = Checkpoints(folder, signature, 1).newest(zero_stage=0, precision="fp32")
    if tag is None:
        raise UserError("starts from the beginning")
    return [path.read_bytes() for path in sorted((folder / "state" / tag).rglob("*.pt"))]


def model(run: Run) -> list[Any]:
    return [weight.detach().numpy() for weight in load_model(run, "SAD", 0).parameters()]


def result(run: Run) -> list[Any]:
    modes = read_result(run.evaluation("SAD", 0).path / "result.h5").modes.values()
    return [array for mode in modes for array in (mode.values, *mode.references.values())]


KINDS: dict[str, tuple[Callable[[Run], list[Any]], Callable[[Run], list[Path]]]] = {
    "shard": (dataset, lambda run: sorted((run.data().path / "train").glob("shard-*.h5"))),
    "manifest": (dataset, lambda run: [run.data().path / "train/manifest.json"]),
    "checkpoint": (
        checkpoint,
        lambda run: sorted((run.checkpoint("SAD", 0).path / "state").rglob("*.pt")),
    ),
    "list of checkpoints": (
        checkpoint,
        lambda run: [run.checkpoint("SAD", 0).path / "state/checkpoints.json"],
    ),
    "weights": (model, lambda run: [run.checkpoint("SAD", 0).path / "weights.pt"]),
    "marker": (model, lambda run: [run.checkpoint("SAD", 0).path / "done.json"]),
    "result": (result, lambda run: [run.evaluation("SAD", 0).path / "result.h5"]),
}


def damaged(content: bytes, generator: np.random.Generator) -> bytes:
    place = int(generator.integers(len(content)))
    if generator.random() < 0.25:
        return content[:place]
    flipped = content[place] ^ (1 << int(generator.integers(8)))
    return content[:place] + bytes([flipped]) + content[place + 1 :]


def same(mine: list[Any], theirs: list[Any]) -> bool:
    return len(mine) == len(theirs) and all(
        np.array_equal(a, b) if isinstance(a, np.ndarray) else a == b
        for a, b in zip(mine, theirs, strict=True)
    )


def older_checkpoint(run: Run, newest: list[Any]) -> list[Any]:
    """The one before: what a torn newest one falls back to."""
    folder = run.checkpoint("SAD", 0).path / "state"
    tags = sorted(path.name for path in folder.glob("step-*"))
    assert len(tags) == 2
    older = [path.read_bytes() for path in sorted((folder / tags[0]).rglob("*.pt"))]
    assert not same(older, newest)
    return older


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("places", [12, pytest.param(200, marks=pytest.mark.stress)])
def test_damage_is_found_or_has_no_effect(finished: Run, kind: str, places: int):
    read, files = KINDS[kind]
    expected = read(finished)
    allowed = [expected]
    if read is checkpoint:
        allowed.append(older_checkpoint(finished, expected))
    generator, found = np.random.default_rng(places), 0
    for _ in range(places):
        path = files(finished)[int(generator.integers(len(files(finished))))]
        content = path.read_bytes()
        try:
            path.write_bytes(damaged(content, generator))
            try:
                got = read(finished)
            except UserError as error:
                found += 1
                assert "\n" not in str(error)
            else:
                assert any(same(got, each) for each in allowed), f"{path} was silently different"
        finally:
            path.write_bytes(content)
    print(f"{kind}: {found} of {places} damages refused, no other gave different numbers")
    assert same(read(finished), expected)
