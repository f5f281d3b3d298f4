"""Checkpoints of a training run: saved by all ranks together, listed only when complete.

state/step-00001234/      what DeepSpeed writes (model, optimizer, position)
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
from sad_hpc.pretrain.deepspeed_private import checkpoint_types
from sad_hpc.pretrain.engine import on_first_rank, precision_of
from sad_hpc.storage.files import checksum as file_checksum
from sad_hpc.storage.files import read_json, synced_bytes, typed, write_error, write_json

WEIGHTS_ONLY = "TORCH_FORCE_WEIGHTS_ONLY_LOAD"

KEPT = 2
"""Complete checkpoints that stay on disk."""


@contextmanager
def _no_code_in_pickles() -> Iterator[None]:
    """DeepSpeed loads whole pickles; within this block torch refuses what is not known as data."""
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
    """Checksums by name."""


@dataclass(frozen=True)
class _Position:
    """Where a training goes on."""

    step: Annotated[int, Field(ge=0)]
    loss_sum: float


class Checkpoints:
    """The checkpoints of one (method, seed)."""

    def __init__(self, folder: Path, signature: str, world_size: int) -> None:
        self._state = folder / "state"
        self._index = self._state / "checkpoints.json"
        self._signature, self._world_size = signature, world_size

    def save(self, engine: Any, position: dict[str, Any]) -> None:
        """Save model, optimizer and position; every rank must call it at the same step.

        Raises:
            UserError: the disk is full or the folder cannot be written; older checkpoints stay.
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
        """Restore the newest checkpoint that is whole; returns its position, or None.

        Every rank must call it.

        Raises:
            CheckpointError: see `newest`; loading it would run code; or it is of a training that
                has diverged.
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
                f"{self._state / tag} holds more than tensors and numbers, which no training of "
                f"ours has written: remove {self._state}"
            ) from None
        except (RuntimeError, LookupError, TypeError, ValueError, AttributeError, AssertionError):
            position = None
        if position is None:
            raise CheckpointError(
                f"{self._state / tag} does not fit the model or its training: remove {self._state}"
            )
        if not all_finite(engine.module.parameters()):
            raise CheckpointError(
                f"{self._state / tag} holds weights that are not finite: its training has "
                f"diverged; remove {self._state}, {DivergedError.REMEDY}"
            )
        return asdict(position)

    def newest(self, zero_stage: int, precision: str) -> str | None:
        """The tag of the newest checkpoint that is whole, or None.

        Raises:
            CheckpointError: it belongs to another model, was saved in another precision, or by
                another number of ranks with a ZeRO stage that cannot change it.
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
                    f"{self._state / entry['tag']} was saved in {entry['precision']}, this job "
                    f"trains in {precision}: pretrain.precision=auto is bf16 on GPUs and fp32 on "
                    f"CPUs; go on where it began, or begin anew: remove {self._state}"
                )
            if entry["world_size"] != self._world_size and zero_stage > 0:
                raise CheckpointError(
                    f"{self._state / entry['tag']} was saved by {entry['world_size']} ranks, this "
                    f"job has {self._world_size}: start as many, or train with "
                    "pretrain.zero_stage=0, which resumes on any number"
                )
            return entry["tag"]
        return None

    def _explained(self, error: Exception, tag: str, engine: Any) -> Exception:
        """torch reports what a disk refuses as RuntimeErrors of its own: the disk itself is asked.
        Other errors are left as they are."""
        # Weights and Adam's two moments, in single precision.
        needed = 12 * sum(parameter.numel() for parameter in engine.module.parameters())
        shutil.rmtree(self._state / f"tmp-{tag}", ignore_errors=True)
        refusal = error if isinstance(error, OSError) else self._refusal(needed)
        if refusal is None and "enforce fail" in str(error):  # there was less space a moment ago
            refusal = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return error if refusal is None else write_error(self._state / tag, refusal, needed)

    def _refusal(self, needed: int) -> OSError | None:
        """What the disk says to somebody who wants so many bytes of it; None if they are there."""
        try:
            self._state.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self._state) as probe:
                os.posix_fallocate(probe.fileno(), 0, needed)
        except OSError as error:
            return error
        return None

    def _publish(self, temporary: str, tag: str, precision: str) -> None:
        """Rename a complete checkpoint, lists it, and removes all that are no longer listed."""
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
        """The index's entries, newest first; what is no entry is left out."""
        index = typed(list[dict[str, Any]], read_json(self._index)) or []
        return [entry for entry in index if typed(_Entry, entry) is not None]

    def _is_whole(self, entry: dict[str, Any]) -> bool:
        folder = self._state / str(entry["tag"])
        return all(
            (folder / name).is_file() and file_checksum((folder / name).read_bytes()) == checksum
            for name, checksum in entry["files"].items()
        )
