"""Format of a dataset on disk: groups, attributes, chunks, and the manifest of its shards.

    data/<signature>/{train,test}/shard-00000.h5 ... manifest.json dataset.h5

Every file has these datasets; the first axis is the task, of length n:

    transitions/states (n,T,d) actions (n,T) rewards (n,T) next_states (n,T,d)  Algorithm 1
    episodes/...                                     the same, rollouts of the behavior policy
    labels/{sad,dpt,dpt_star}/query_states (n,K,d) actions (n,K)      K: data.queries_per_task
    tasks/index (n) parameters (n,p)                 not an input of the model

If an episode can end before its T steps, also, as uint8:

    transitions/ends (n,T)  episodes/ends            1: the episode ends with the transition

If the model sees images of states (Miniworld), also, as uint8:

    transitions/images (n,T,s,s,3)  episodes/images  labels/*/query_images (n,K,s,s,3)

If states are images themselves, states, next_states and query_states have (H,W,C) uint8 for d.
"""

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from sad_hpc.errors import DatasetError, UnreadableError
from sad_hpc.storage.json_files import parse_json, sealed, typed, unsealed, write_json
from sad_hpc.tasks.fingerprint import are_alike

FORMAT_VERSION = 2
MANIFEST = "manifest.json"
VIRTUAL = "dataset.h5"
CHUNK_BYTES = 512 * 1024
"""Approximate size of a chunk, which has whole tasks."""

MOST = 10**15
"""Largest number of tasks, blocks or steps in a manifest."""
Count = Annotated[int, Field(ge=0, le=MOST)]
Word = Annotated[str, Field(pattern=r"^[\w.-]{1,100}$")]

REMEDY = "run `sad-hpc collect CONFIG`, which replaces missing and damaged shards"


def chunk_shape(array: NDArray[Any]) -> tuple[int, ...]:
    """Return the shape of a chunk with whole tasks of about CHUNK_BYTES."""
    row_bytes = max(1, array.nbytes // max(1, len(array)))
    rows = max(1, min(len(array), CHUNK_BYTES // row_bytes))
    return (rows, *array.shape[1:])


def are_images(array: NDArray[Any]) -> bool:
    """Return whether an array of a dataset has images, (n, T, H, W, C)."""
    return array.ndim == 5


def compression(array: NDArray[Any]) -> dict[str, Any]:
    """Return the compression of a dataset as arguments of `create_dataset`.

    Only images are compressed, by gzip at level 1, which is much faster than rendering them.  Other
    datasets are small and mostly random.
    """
    if are_images(array):
        return {"compression": "gzip", "compression_opts": 1}
    return {}


def shard_name(block: int) -> str:
    """Return the file name of a block's shard."""
    return f"shard-{block:05d}.h5"


@dataclass(frozen=True)
class ShardEntry:
    """A shard's entry in the manifest."""

    block: Count
    rows: Annotated[int, Field(ge=1, le=MOST)]
    bytes: Count
    checksum: str
    """BLAKE2b-256 of the file's bytes, in hex."""
    steps: dict[str, Count]
    """Environment steps, by purpose; see `Block.steps`."""

    @property
    def name(self) -> str:
        """File name of the shard."""
        return shard_name(self.block)


@dataclass
class Manifest:
    """The list of a split's finished shards; training reads listed shards only."""

    signature: Word
    split: Word
    n_blocks: Count
    n_tasks: Annotated[int, Field(ge=1, le=MOST)]
    config: dict[str, Any]
    """The config of the dataset: sections `task` and `data`."""
    shards: dict[int, ShardEntry]
    """Entries by block."""
    fingerprint: Sequence[float] | None = None
    """Fingerprint of the environment of the data (see `TaskFamily.fingerprint`)."""

    @property
    def complete(self) -> bool:
        """True if every block has a shard."""
        return len(self.shards) == self.n_blocks

    @property
    def in_order(self) -> list[ShardEntry]:
        """The shards' entries in the order of their blocks, which is that of the tasks."""
        return [self.shards[block] for block in sorted(self.shards)]

    @property
    def steps(self) -> dict[str, int]:
        """Environment steps of all shards, by purpose."""
        total: dict[str, int] = {}
        for shard in self.shards.values():
            for purpose, count in shard.steps.items():
                total[purpose] = total.get(purpose, 0) + count
        return total

    @property
    def digest(self) -> str:
        """Checksum of the whole split: splits with equal digests have equal files."""
        return combined_digest(entry.checksum for entry in self.in_order)

    def check_environment(self, folder: Path, fingerprint: Sequence[float] | None) -> None:
        """Check that the data are of this process's environment.

        Args:
            folder: folder of the split.
            fingerprint: fingerprint of this process's environment.

        Raises:
            DatasetError: the data are of another environment.
        """
        if not are_alike(self.fingerprint, fingerprint):
            raise DatasetError(
                f"{folder} has data of another environment: the same seeds give other episodes "
                "now. Restore the libraries and modules that the environment imports, give a fixed "
                "seed to numbers drawn at import, or remove the folder above it"
            )

    def save(self, folder: Path) -> None:
        """Write `manifest.json`; readers see the old one or the new one."""
        content = asdict(self)
        content["format_version"] = FORMAT_VERSION
        if self.fingerprint is None:
            del content["fingerprint"]
        content["shards"] = [asdict(entry) for entry in self.in_order]
        write_json(folder / MANIFEST, sealed(content))

    @classmethod
    def load(cls, folder: Path) -> "Manifest":
        """Read `manifest.json`.

        Raises:
            DatasetError: it is missing, damaged, or of another format version.
        """
        path = folder / MANIFEST
        damaged = DatasetError(f"{path} is damaged; remove it and {REMEDY}")
        try:
            content = unsealed(typed(dict[str, Any], parse_json(path)) or {})
        except FileNotFoundError as error:
            raise DatasetError(f"no dataset at {folder}: {path} is missing; {REMEDY}") from error
        except OSError as error:
            raise UnreadableError(f"cannot read {path}: {error.strerror}") from error
        except ValueError as error:
            raise damaged from error
        if content.get("format_version") != FORMAT_VERSION:
            raise DatasetError(
                f"{path} has format version {content.get('format_version')!r}, not "
                f"{FORMAT_VERSION}; {REMEDY}"
            )
        entries = typed(list[ShardEntry], content.get("shards"))
        if entries is None:
            raise damaged
        shards = {entry.block: entry for entry in entries}
        manifest = typed(cls, content | {"shards": {}})
        if manifest is None or not all(block < manifest.n_blocks for block in shards):
            raise damaged
        manifest.shards = shards
        return manifest


def combined_digest(checksums: Iterable[str]) -> str:
    """Return one checksum of an ordered list of checksums."""
    return hashlib.blake2b("\n".join(checksums).encode(), digest_size=16).hexdigest()


def root_attributes(
    signature: str, config: dict[str, Any], family: str, steps: dict[str, int]
) -> dict[str, Any]:
    """Return the root attributes of a shard or of the virtual dataset."""
    data, task = config["data"], config["task"]
    attributes: dict[str, Any] = {
        "format_version": FORMAT_VERSION,
        "signature": signature,
        "config": json.dumps(config, sort_keys=True),
        "family": family,
        "horizon": task["horizon"],
        "trust_horizon": data["trust_horizon"],
        "episodes_per_action": data["episodes_per_action"],
        "score": data["score"],
        "behavior_policy": json.dumps(data["behavior_policy"]),
    }
    for purpose, count in steps.items():
        attributes[f"steps_{purpose}"] = np.int64(count)
    return attributes
