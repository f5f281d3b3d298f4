"""Training in windows: which examples a rank holds, and in which batches."""

import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from hypothesis import given
from hypothesis import strategies as st

from sad_hpc.collect.stage import collect
from sad_hpc.dataset.reader import Part
from sad_hpc.errors import ConfigError, DatasetError
from sad_hpc.experiment.load import load_experiment, parse_experiment
from sad_hpc.pretrain.batches import WholeBatches, WindowBatches, make_batches
from sad_hpc.pretrain.epoch_windows import EpochWindows
from sad_hpc.pretrain.importance import dit_weights
from sad_hpc.pretrain.training_columns import TrainingColumns
from sad_hpc.storage.run import Run
from tests.conftest import TINY, with_data_of

CPU = torch.device("cpu")
SHARD = "train/shard-00003.h5"


def rows_of(windows: EpochWindows, window: int, first: int, last: int) -> np.ndarray:
    """Return the rows (block, row) of the places `first` to `last` of each batch."""
    parts = windows.parts(window, first, last)
    rows = np.concatenate([[(part.block, r) for r in range(*part[1:])] for part in parts])
    return rows[windows.order(window, first, last)]


@given(
    st.lists(st.integers(0, 9), min_size=1, max_size=8),
    st.integers(1, 40),
    st.sampled_from([2, 4, 6]),
    st.integers(0, 3),
)
def test_an_epoch_has_every_example_once_in_the_same_batches_for_any_ranks(
    blocks: list[int], window: int, batch: int, epoch: int
):
    windows = EpochWindows(blocks, window, batch, seed=7, epoch=epoch)
    found: list[np.ndarray] = []
    for number in range(windows.count):
        whole = rows_of(windows, number, 0, batch)
        assert whole.shape[1] == batch and len(whole) * batch <= max(window, batch)
        half = [
            rows_of(windows, number, *places) for places in ((0, batch // 2), (batch // 2, batch))
        ]
        assert (np.concatenate(half, axis=1) == whole).all()
        found.extend(whole)
    assert len(found) == sum(blocks) // batch
    counts = Counter((int(b), int(row)) for each in found for b, row in each)
    assert set(counts.values()) <= {1}
    assert all(row < blocks[block] for block, row in counts)


def test_ranks_read_their_part_of_a_window_alone():
    windows = EpochWindows([64] * 32, 16 * 64, 64, seed=0, epoch=0)
    read = [windows.parts(0, rank * 8, (rank + 1) * 8) for rank in range(8)]
    assert [len(parts) for parts in read] == [2] * 8
    assert len({part.block for parts in read for part in parts}) == 16


def test_epochs_seeds_and_windows_have_orders_of_their_own():
    def order(seed: int, epoch: int, window: int) -> list[int]:
        return EpochWindows([50] * 4, 100, 10, seed, epoch).order(window, 0, 10).ravel().tolist()

    orders = [order(0, 0, 0), order(1, 0, 0), order(0, 1, 0), order(0, 0, 1)]
    assert len(set(map(tuple, orders))) == 4
    assert order(0, 0, 0) == orders[0]
    first = {EpochWindows([50] * 40, 100, 10, 0, epoch).parts(0, 0, 10)[0] for epoch in range(5)}
    assert len(first) > 1


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch):
    """Set the rank and the number of ranks of this process, without any other one."""

    def become(rank: int = 0, world_size: int = 1) -> None:
        monkeypatch.setattr(dist, "get_rank", lambda: rank)
        monkeypatch.setattr(dist, "get_world_size", lambda: world_size)

    monkeypatch.setattr(
        dist, "all_gather_object", lambda every, mine: every.__setitem__(slice(None), [mine])
    )
    become()
    return become


def windowed(run: Run, folder: Path, *overrides: str) -> Run:
    experiment = load_experiment(TINY, ["pretrain.window_blocks=2", *overrides])
    return with_data_of(run, Run(experiment, folder))


def batches_of(run: Run, method: str = "SAD", seed: int = 0):
    return make_batches(run, method, seed, run.experiment.optimization(method), CPU)


def contexts(states: Any, actions: Any) -> Counter[bytes]:
    """Count the different contexts, (n, T, d) and (n, T)."""
    rows = np.concatenate([np.asarray(states), np.asarray(actions)[..., None]], axis=2)
    return Counter(row.astype(np.int64).tobytes() for row in rows)


@pytest.mark.parametrize("method", ["SAD", "DIT"])
def test_batches_of_windows_have_the_examples_of_the_dataset(
    tiny_run: Run, tmp_path: Path, alone, method: str
):
    batches, held = batches_of(windowed(tiny_run, tmp_path), method)
    everything, whole = batches_of(tiny_run, method)
    assert isinstance(batches, WindowBatches) and isinstance(everything, WholeBatches)
    assert batches.per_epoch == everything.per_epoch == 536 // 64
    arrays = TrainingColumns(tiny_run, method).read()
    dataset = contexts(arrays["states"][:536], arrays["actions"][:536])
    for epoch in range(2):
        steps = range(epoch * batches.per_epoch, (epoch + 1) * batches.per_epoch)
        taken = [batches.at(step).context for step in steps]
        found: Counter[bytes] = sum((contexts(c.states, c.actions) for c in taken), Counter())
        assert found.total() == batches.per_epoch * 64 and not found - dataset
    mine, theirs = (each.held_out(each.holdout(0, 1)) for each in (held, whole))
    assert torch.equal(mine.context.states, theirs.context.states)


@pytest.mark.parametrize("resampled", [0.0, 0.5])
def test_two_ranks_share_the_batch_of_one(tiny_run: Run, tmp_path: Path, alone, resampled: float):
    run = windowed(tiny_run, tmp_path, f"pretrain.resample_probability={resampled}")
    whole, _ = batches_of(run)
    shares = []
    for rank in range(2):
        alone(rank, 2)
        shares.append(batches_of(run)[0])
    for step in (0, 3, 4, 9, 11):
        expected, parts = whole.at(step), [share.at(step) for share in shares]
        for name in ("states", "actions", "rewards"):
            together = torch.cat([getattr(part.context, name) for part in parts])
            assert torch.equal(together, getattr(expected.context, name)), name
        assert torch.equal(torch.cat([part.labels for part in parts]), expected.labels)


def test_batches_can_be_asked_for_in_any_order(tiny_run: Run, tmp_path: Path, alone):
    run = windowed(tiny_run, tmp_path)
    forward, resumed = batches_of(run)[0], batches_of(run)[0]
    labels = [forward.at(step).labels for step in range(2 * forward.per_epoch)]
    for step in (7, 8, 15):
        assert torch.equal(resumed.at(step).labels, labels[step])


def test_windows_of_all_blocks_are_the_whole_dataset(tiny_run: Run, tmp_path: Path, alone):
    run = windowed(tiny_run, tmp_path, "pretrain.window_blocks=6")
    batches, plain = batches_of(run)[0], batches_of(tiny_run)[0]
    assert isinstance(batches, WholeBatches)
    assert all(torch.equal(batches.at(s).labels, plain.at(s).labels) for s in (0, 5, 9))


def test_weights_of_parts_are_those_of_the_whole_dataset(tmp_path: Path, alone):
    """Returns are costs here, of which DIT subtracts the lowest one of all."""
    mapping = {
        "name": "costs",
        "task": {"family": "linear_bandit", "horizon": 20},
        "data": {"tasks": 400, "trust_horizon": 1, "block_tasks": 50, "seed": 0},
        "rows": ["DIT"],
        "pretrain": {"epochs": 1, "holdout_tasks": 16},
        "evaluate": {"tasks": 20},
    }
    for seed in range(20):
        mapping["data"]["seed"] = seed
        run = Run(parse_experiment(mapping, "test"), tmp_path)
        collect(run)
        whole = TrainingColumns(run, "DIT").read()
        if whole["rewards"].sum() < 0:
            break
    assert whole["weights"].min() == 0
    source = TrainingColumns(run, "DIT")
    source.prepare_parts()
    entry = source.manifest.in_order[2]
    part = source.read_parts([Part(entry, 10, 30)])
    np.testing.assert_allclose(part["weights"], whole["weights"][110:130], rtol=1e-6)
    alone_weights = dit_weights(source.family, run.experiment.dit, part)
    assert not np.allclose(alone_weights, part["weights"])


def own_copy(run: Run, folder: Path) -> tuple[Run, Path]:
    """Return a run with a copy of the dataset, and the path of a shard in it."""
    own = windowed(run, folder)
    (own.path / "data").unlink()
    shutil.copytree(run.data().path, own.data().path)
    return own, own.data().path / SHARD


@pytest.mark.parametrize("damage", ["missing", "truncated"])
def test_a_shard_that_is_not_there_is_named_at_the_start(
    tiny_run: Run, tmp_path: Path, alone, damage: str
):
    run, path = own_copy(tiny_run, tmp_path)
    if damage == "missing":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(DatasetError, match="shard-00003"):
        batches_of(run)


def test_a_damaged_shard_is_named_when_it_is_read(tiny_run: Run, tmp_path: Path, alone):
    run, path = own_copy(tiny_run, tmp_path)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    batches, _ = batches_of(run)
    with pytest.raises(DatasetError, match=r"shard-00003\.h5 is damaged"):
        for step in range(batches.per_epoch):
            batches.at(step)


def test_validation_tasks_need_the_whole_dataset():
    with pytest.raises(ConfigError, match="validation_tasks needs the whole dataset"):
        load_experiment(TINY, ["pretrain.window_blocks=2", "pretrain.validation_tasks=0.2"])
