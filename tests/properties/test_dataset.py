"""Any arrays survive a round trip to a file; any change of the file is detected."""

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sad_hpc.dataset.reader import Arrays, read_columns, read_shard
from sad_hpc.dataset.schema import Manifest, ShardEntry
from sad_hpc.dataset.writer import shard_content, write_shard, write_virtual_dataset
from sad_hpc.distill.block import Block
from sad_hpc.errors import DatasetError

pytestmark = pytest.mark.faults

CONFIG = {
    "task": {"horizon": 9},
    "data": {
        "trust_horizon": 3,
        "episodes_per_action": 1,
        "behavior_policy": "uniform",
        "score": "mean",
    },
}
NAMES = ["transitions/states", "transitions/rewards", "transitions/images", "labels/sad/actions"]
DTYPES = st.sampled_from(["u1", "i2", "i8", "f4", "f8"])


@st.composite
def splits(draw: st.DrawFn) -> list[Arrays]:
    """The arrays of one shard or more, alike but for their rows."""
    columns = {
        name: (
            draw(st.lists(st.integers(1, 5), max_size=3).map(tuple)),
            np.dtype(draw(DTYPES)),
        )
        for name in NAMES
    }
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    shards = []
    for rows in draw(st.lists(st.integers(1, 40), min_size=1, max_size=4)):
        shard = {"tasks/index": np.arange(rows)}
        for name, (shape, dtype) in columns.items():
            shard[name] = random.integers(0, 200, (rows, *shape)).astype(dtype)
        shards.append(shard)
    return shards


def write(folder: Path, shards: list[Arrays]) -> Manifest:
    blocks = [Block(shard, {"transitions": 7}) for shard in shards]
    entries = {
        number: write_shard(folder, number, block, shard_content(block, "s", CONFIG, "darkroom"))
        for number, block in enumerate(blocks)
    }
    rows = sum(entry.rows for entry in entries.values())
    manifest = Manifest("s", "train", len(entries), rows, CONFIG, entries)
    manifest.save(folder)
    return Manifest.load(folder)


@given(splits(), st.integers(1, 200))
def test_what_is_written_is_read(shards: list[Arrays], rows: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        manifest = write(folder, shards)
        assert manifest.complete and manifest.steps == {"transitions": 7 * len(shards)}
        write_virtual_dataset(folder, manifest, "darkroom")
        columns = read_columns(folder, manifest, NAMES, rows)
        for column in NAMES:
            expected = np.concatenate([shard[column] for shard in shards])[:rows]
            assert columns[column].dtype == expected.dtype
            np.testing.assert_array_equal(columns[column], expected)


@given(splits(), st.data())
def test_any_changed_byte_is_found(shards: list[Arrays], data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        manifest = write(folder, shards[:1])
        entry: ShardEntry = manifest.shards[0]
        path = folder / entry.name
        content = bytearray(path.read_bytes())
        content[data.draw(st.integers(0, len(content) - 1))] ^= data.draw(st.integers(1, 255))
        path.write_bytes(content)
        with pytest.raises(DatasetError, match="damaged"):
            read_shard(folder, manifest, entry)
