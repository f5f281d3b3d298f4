"""Progress: a bar on a terminal, plain lines in a log, and a heartbeat on disk for `status`."""

import sys
import time
from types import TracebackType
from typing import Any

from tqdm import tqdm

from sad_hpc.errors import SadError
from sad_hpc.storage.run import StageFolder


class Progress:
    """Counts the work of one stage; only rank 0 has one.

    Args:
        folder: gets the heartbeat.
        total: units of work in all.
        unit: such as `blocks`.
        done: units that an earlier start finished.
        seconds: shortest time between two lines or heartbeats.
    """

    def __init__(
        self, folder: StageFolder, total: float, unit: str, done: float = 0, seconds: float = 10.0
    ) -> None:
        self._folder, self._total, self._unit, self._seconds = folder, total, unit, seconds
        self._done = self._first = done
        self._start = self._last = time.monotonic()
        self._bar: Any = None
        if sys.stderr.isatty():
            self._bar = tqdm(total=total, initial=done, unit=unit, desc=folder.title)
        self._beat()

    def __enter__(self) -> "Progress":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.close()
        if error is None:
            self._report("")

    def update(self, done: float, note: str = "") -> None:
        """Sets the units done so far; `note` is shown beside them."""
        if self._bar is not None:
            self._bar.update(done - self._done)
            self._bar.set_postfix_str(note)
        self._done = done
        if time.monotonic() - self._last >= self._seconds:
            self._report(note)

    def _report(self, note: str) -> None:
        self._last = time.monotonic()
        self._beat()
        if self._bar is None:
            elapsed = self._last - self._start
            rate = (self._done - self._first) / max(elapsed, 1e-9)
            left = (self._total - self._done) / rate if rate > 0 else float("inf")
            line = (
                f"{self._folder.title}: {self._done:,.6g}/{self._total:,.6g} {self._unit}, "
                f"{elapsed:.0f} s, {_duration(left)} left"
            )
            print(f"{line}, {note}" if note else line, file=sys.stderr, flush=True)

    def _beat(self) -> None:
        """The heartbeat is for `status` alone: a disk that fails for a moment ends no work."""
        try:
            self._folder.heartbeat(self._done, self._total, self._unit)
        except SadError as error:
            print(f"no heartbeat: {error}", file=sys.stderr, flush=True)


def _duration(seconds: float) -> str:
    if seconds == float("inf"):
        return "unknown time"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}"
