"""One stage's output folder: its config, provenance, heartbeat and completion marker."""

import json
import os
import socket
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from sad_hpc.errors import UserError
from sad_hpc.experiment.config import differences
from sad_hpc.storage.files import checksum, file_size, read_whole, write_error
from sad_hpc.storage.json_files import Moment, read_json, sealed, typed, unsealed, write_json
from sad_hpc.storage.lock import HEARTBEAT
from sad_hpc.storage.provenance import continued, provenance, read_record

METRICS = "metrics.jsonl"
"""Metrics of a training, one line an epoch."""
RECORDS = ("config.json", "provenance.json")
"""Small files of every stage folder."""


@dataclass(frozen=True)
class _Heartbeat:
    """The content of progress.json."""

    done: Annotated[float, Field(ge=0, le=1e15)]
    total: Annotated[float, Field(ge=0, le=1e15)]
    unit: str
    time: Moment
    host: str
    pid: Annotated[int, Field(ge=0, lt=2**31)]
    stopped: Moment = 0
    """When a signal ended the work after this heartbeat; 0 if none has."""
    activity: str = ""
    """An activity that does not count as progress, such as `compiling`."""
    gained: Annotated[float, Field(ge=0, le=1e15)] = 0
    """Units that this start has finished."""
    seconds: Annotated[float, Field(ge=0, le=1e15)] = 0
    """Time that they took."""


@dataclass(frozen=True)
class _Marker:
    """The common content of every done.json; stages add details."""

    finished: Moment
    outputs: dict[str, int | None]
    """Sizes in bytes by file name."""
    checksums: dict[str, str] = field(default_factory=dict)
    """Checksums of small files by name; absent in markers of earlier versions."""
    checksum: str = ""
    """Checksum of the weights."""
    ranks: Annotated[int, Field(ge=1)] | None = None
    precision: str | None = None


@dataclass(frozen=True)
class StageFolder:
    """The output folder of one stage."""

    stage: str
    path: Path

    @property
    def title(self) -> str:
        """Name in logs and tables, such as `pretrain sad-seed0-0123456789ab`."""
        return f"{self.stage} {self.path.name}"

    @property
    def key(self) -> str:
        """Name in the provenance of tables, such as `pretrain/sad-seed0-0123456789ab`."""
        return f"{self.stage}/{self.path.name}"

    def prepare(self, config: dict[str, Any]) -> None:
        """Create the folder, or check that the same config made it.

        The provenance of an unfinished folder also records each version that resumes it.

        Raises:
            UserError: the folder holds the output of another config, or cannot be written.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise write_error(self.path, error) from error
        stored = read_json(self.path / "config.json")
        if stored is None:
            write_json(self.path / "config.json", config)
        elif changed := differences(stored, json.loads(json.dumps(config))):
            raise UserError(
                f"{self.path} holds the output of another config ({'; '.join(changed)}); "
                "remove the folder or choose another --runs folder"
            )
        if self.done is None:
            path = self.path / "provenance.json"
            write_json(path, continued(read_record(path), provenance()))

    @property
    def done(self) -> dict[str, Any] | None:
        """The content of the completion marker; None if the stage is not complete.

        A damaged marker, and an output that is missing or has another size, count as incomplete.
        """
        stored = typed(dict[str, Any], read_json(self.path / "done.json"))
        try:
            content = unsealed(stored or {})
        except ValueError:
            return None
        marker = typed(_Marker, content)
        if marker is None:
            return None
        sizes = marker.outputs.items()
        intact = all(file_size(self.path / name) == size for name, size in sizes)
        return content if intact else None

    def complete(
        self, outputs: Iterable[str] = (), records: Iterable[str] = (), **details: Any
    ) -> None:
        """Mark the stage as complete.

        Args:
            outputs: names of the files that later stages read, relative to the folder.
            records: names of small files whose checksums the marker records, besides `config.json`
                and `provenance.json`; see `check_records`.
            details: further content of the marker.
        """
        sizes = {name: file_size(self.path / name) for name in outputs}
        contents = {name: self._content(name) for name in (*RECORDS, *records)}
        checksums = {name: checksum(c) for name, c in contents.items() if c is not None}
        marker = {"finished": time.time(), **details, "outputs": sizes, "checksums": checksums}
        write_json(self.path / "done.json", sealed(marker))

    def check_records(self) -> None:
        """Compare small files, whose numbers reach tables and cards, with the marker's checksums.

        Raises:
            UserError: a file was changed after the stage was complete.
        """
        for name, expected in (self.done or {}).get("checksums", {}).items():
            content = self._content(name)
            if content is not None and checksum(content) != expected:
                raise UserError(
                    f"{self.path / name} was changed after its stage was complete: restore it, or "
                    f"remove {self.path} and launch again"
                )

    def _content(self, name: str) -> bytes | None:
        """Return a file's bytes; None if it cannot be read."""
        try:
            return read_whole(self.path / name)
        except OSError:
            return None

    @property
    def progress(self) -> dict[str, Any] | None:
        """The last heartbeat, with the keys of `_Heartbeat`, or None."""
        beat = typed(_Heartbeat, read_json(self.path / HEARTBEAT))
        return None if beat is None else asdict(beat)

    def progress_since(self, moment: float) -> dict[str, Any] | None:
        """Return the last heartbeat if it is not older than `moment`, or None."""
        progress = self.progress
        return progress if progress and progress["time"] >= moment else None

    def heartbeat(
        self,
        done: float,
        total: float,
        unit: str,
        activity: str = "",
        gained: float = 0,
        seconds: float = 0,
    ) -> None:
        """Record the stage's progress for `sad-hpc status`.

        Args:
            done: finished units of work.
            total: all units of work.
            unit: name of a unit, such as `blocks`.
            activity: what is done now and does not count as progress.
            gained: units that this start has finished.
            seconds: time that they took.
        """
        where = time.time(), socket.gethostname(), os.getpid()
        beat = _Heartbeat(
            done, total, unit, *where, activity=activity, gained=gained, seconds=seconds
        )
        write_json(self.path / HEARTBEAT, asdict(beat))

    def note_stop(self) -> None:
        """Record for `sad-hpc status` that a signal ended the work, which can be resumed."""
        if beat := self.progress:
            write_json(self.path / HEARTBEAT, {**beat, "stopped": time.time()})
