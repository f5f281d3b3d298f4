"""Checkpoints of a training, which all ranks save together and rank 0 lists when complete.

state/step-00001234/      DeepSpeed's files (model, optimizer, position)
state/checkpoints.json    the complete ones, newest first, with a checksum of each file
"""

import errno
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from pickle import UnpicklingError
from typing import Annotated, Any

import torch
from pydantic import Field

from sad_hpc.errors import CheckpointError, DivergedError
from sad_hpc.model.finite import all_finite
from sad_hpc.pretrain.best_weights import Best
from sad_hpc.pretrain.deepspeed_private import checkpoint_types
from sad_hpc.pretrain.engine import on_first_rank, precision_of
from sad_hpc.storage.files import checksum as file_checksum
from sad_hpc.storage.files import synced_bytes, write_error
from sad_hpc.storage.json_files import parse_json, typed, write_json

WEIGHTS_ONLY = "TORCH_FORCE_WEIGHTS_ONLY_LOAD"

KEPT = 2
"""Number of complete checkpoints that stay on disk."""


@contextmanager
def _no_code_in_pickles() -> Iterator[None]:
    """Make DeepSpeed load data only, instead of any pickled code, in this context."""
    os.environ[WEIGHTS_ONLY] = "1"
    try:
        with torch.serialization.safe_globals(checkpoint_types()):
            yield
    finally:
        del os.environ[WEIGHTS_ONLY]


@dataclass(frozen=True)
class _Entry:
    """A checkpoint in the index."""

    tag: Annotated[str, Field(pattern=r"^step-\d+$")]
    signature: str
    world_size: int
    precision: str
    files: dict[str, str]
    """Checksums of files by name."""


@dataclass(frozen=True)
class _Position:
    """The position in a training at which it resumes."""

    step: Annotated[int, Field(ge=0)]
    loss_sum: float
    best: Best | None = None
    """None: the training keeps the last weights, or has not measured any."""


class Checkpoints:
    """The checkpoints of one (method, seed)."""

    def __init__(self, folder: Path, signature: str, world_size: int) -> None:
        self._state = folder / "state"
        self._index = self._state / "checkpoints.json"
        self._signature, self._world_size = signature, world_size

    def save(self, engine: Any, position: dict[str, Any]) -> None:
        """Save model, optimizer and position; every rank must call it at the same step.

        Raises:
            UserError: the disk is full, or the folder cannot be written; older checkpoints stay.
        """
        tag = f"step-{position['step']:08d}"
        temporary = f"tmp-{tag}"
        on_first_rank(lambda: shutil.rmtree(self._state / temporary, ignore_errors=True))
        client_state = {"position": position, "signature": self._signature}
        try:
            engine.save_checkpoint(
                str(self._state), tag=temporary, client_state=client_state, save_latest=False
            )
            on_first_rank(lambda: self._publish(temporary, tag, precision_of(engine)))
        except (OSError, RuntimeError) as error:
            raise self._explained(error, tag, engine) from error

    def load(self, engine: Any) -> dict[str, Any] | None:
        """Restore the newest intact checkpoint, and return its position or None.

        Every rank must call it.

        Raises:
            CheckpointError: see `newest`; or the checkpoint has code or weights that are not
                finite.
        """
        kind = engine.zero_optimization_stage(), precision_of(engine)
        tag = on_first_rank(lambda: self.newest(*kind))
        if tag is None:
            return None
        try:
            with _no_code_in_pickles():
                _, client_state = engine.load_checkpoint(str(self._state), tag=tag)
            position = typed(_Position, client_state["position"])
        except UnpicklingError:
            raise CheckpointError(
                f"{self._state / tag} has objects other than tensors and numbers, so sad-hpc did "
                f"not write it: remove {self._state}"
            ) from None
        except (RuntimeError, LookupError, TypeError, ValueError, AttributeError, AssertionError):
            position = None
        if position is None:
            raise CheckpointError(
                f"{self._state / tag} does not fit the model or its training: remove {self._state}"
            )
        if not all_finite(engine.module.parameters()):
            raise CheckpointError(
                f"{self._state / tag} has weights that are not finite, because its training "
                f"diverged: remove {self._state}, {DivergedError.REMEDY}"
            )
        return asdict(position)

    def newest(self, zero_stage: int, precision: str) -> str | None:
        """Return the tag of the newest intact checkpoint, or None.

        Raises:
            CheckpointError: it is of another model or precision, or of another number of ranks
                with a ZeRO stage above 0.
        """
        for entry in self._listed():
            if not self._is_whole(entry):
                continue
            if entry["signature"] != self._signature:
                raise CheckpointError(
                    f"{self._state / entry['tag']} is a checkpoint of another model or config "
                    f"({entry['signature']}, not {self._signature}); remove {self._state}"
                )
            if entry["precision"] != precision:
                raise CheckpointError(
                    f"{self._state / entry['tag']} was saved in {entry['precision']}, but this job "
                    f"trains in {precision} (pretrain.precision=auto is bf16 on GPUs and fp32 on "
                    f"CPUs): use the same precision, or remove {self._state}"
                )
            if entry["world_size"] != self._world_size and zero_stage > 0:
                raise CheckpointError(
                    f"{self._state / entry['tag']} was saved by {entry['world_size']} ranks, but "
                    f"this job has {self._world_size}: start the same number, or train with "
                    "pretrain.zero_stage=0, which resumes on any number"
                )
            return entry["tag"]
        return None

    def _explained(self, error: Exception, tag: str, engine: Any) -> Exception:
        """Convert torch's RuntimeError about a full disk to a UserError; return other errors.

        A trial allocation shows whether the disk has enough space.
        """
        # Weights and Adam's two moments, in single precision.
        needed = 12 * sum(parameter.numel() for parameter in engine.module.parameters())
        shutil.rmtree(self._state / f"tmp-{tag}", ignore_errors=True)
        refusal = error if isinstance(error, OSError) else self._refusal(needed)
        if refusal is None and "enforce fail" in str(error):  # the disk was full a moment ago
            refusal = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return error if refusal is None else write_error(self._state / tag, refusal, needed)

    def _refusal(self, needed: int) -> OSError | None:
        """Try to allocate bytes on the disk, and return the error or None."""
        try:
            self._state.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self._state) as probe:
                os.posix_fallocate(probe.fileno(), 0, needed)
        except OSError as error:
            return error
        return None

    def _publish(self, temporary: str, tag: str, precision: str) -> None:
        """Rename a complete checkpoint, list it, and remove checkpoints that are not listed."""
        shutil.rmtree(self._state / tag, ignore_errors=True)
        (self._state / temporary).rename(self._state / tag)
        entry = {
            "tag": tag,
            "signature": self._signature,
            "world_size": self._world_size,
            "precision": precision,
            "files": {
                str(path.relative_to(self._state / tag)): file_checksum(synced_bytes(path))
                for path in sorted((self._state / tag).rglob("*"))
                if path.is_file()
            },
        }
        older = (e for e in self._listed() if e["tag"] != tag and self._is_whole(e))
        kept = [entry, *older][:KEPT]
        write_json(self._index, kept)
        for folder in self._state.iterdir():
            if folder.is_dir() and folder.name not in [each["tag"] for each in kept]:
                shutil.rmtree(folder, ignore_errors=True)

    def _listed(self) -> list[dict[str, Any]]:
        """Return the index's valid entries, newest first.

        Raises:
            CheckpointError: it cannot be read; without it the training would begin anew.
        """
        try:
            content = parse_json(self._index)
        except (FileNotFoundError, ValueError):
            return []
        except OSError as error:
            raise CheckpointError(
                f"cannot read {self._index}: {error.strerror}; try again when the disk works"
            ) from error
        index = typed(list[dict[str, Any]], content) or []
        return [entry for entry in index if typed(_Entry, entry) is not None]

    def _is_whole(self, entry: dict[str, Any]) -> bool:
        folder = self._state / str(entry["tag"])
        return all(
            (folder / name).is_file() and file_checksum((folder / name).read_bytes()) == checksum
            for name, checksum in entry["files"].items()
        )
