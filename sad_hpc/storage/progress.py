"""Progress of a stage: a bar on a terminal, lines in a log, and a heartbeat file for `status`."""

import sys
import time
from collections.abc import Mapping
from typing import Any

from tqdm import tqdm

from sad_hpc.errors import UserError
from sad_hpc.storage.stage_folder import StageFolder


class Progress:
    """Progress of one stage; only rank 0 reports it.

    Args:
        folder: the stage's folder, for the heartbeat.
        total: total units of work.
        unit: name of a unit, such as `blocks`.
        done: units that an earlier start finished.
        seconds: shortest time between two lines or heartbeats.
    """

    def __init__(
        self, folder: StageFolder, total: float, unit: str, done: float = 0, seconds: float = 10.0
    ) -> None:
        self._folder, self._total, self._unit, self._seconds = folder, total, unit, seconds
        self._done = self._first = done
        self._activity = ""
        self._start = self._last = time.monotonic()  # the time of day may be set
        self._bar: tqdm[Any] = tqdm(
            total=total, initial=done, unit=unit, desc=folder.title, disable=None
        )
        self._beat()

    def __enter__(self) -> "Progress":
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._bar.close()
        if error is None:
            self._report("")

    def update(self, done: float, note: str = "") -> None:
        """Set the number of finished units; `note` is shown beside it."""
        self._bar.update(done - self._done)
        self._bar.set_postfix_str(note)
        self._done, self._activity = done, ""
        if time.monotonic() - self._last >= self._seconds:
            self._report(note)

    def say(self, activity: str) -> None:
        """Report an activity that does not count as progress, until the next `update`."""
        self._activity = activity
        self._bar.set_postfix_str(activity)
        self._report("")

    def _report(self, note: str) -> None:
        self._last = time.monotonic()
        self._beat()
        if self._bar.disable:
            text = progress_text(self._state() | {"total": self._total, "unit": self._unit})
            line = ", ".join(part for part in (f"{self._folder.title}: {text}", note) if part)
            print(line, file=sys.stderr, flush=True)

    def _beat(self) -> None:
        """Write the heartbeat; a failed write is only logged, since only `status` reads it."""
        try:
            self._folder.heartbeat(total=self._total, unit=self._unit, **self._state())
        except UserError as error:
            print(f"heartbeat not written: {error}", file=sys.stderr, flush=True)

    def _state(self) -> dict[str, Any]:
        return {
            "done": self._done,
            "activity": self._activity,
            "gained": self._done - self._first,
            "seconds": time.monotonic() - self._start,
        }


def say_complete(folder: StageFolder) -> None:
    """Print that a stage has nothing to do."""
    print(f"{folder.title}: complete, nothing to do", file=sys.stderr, flush=True)


def progress_text(progress: Mapping[str, Any] | None) -> str:
    """Return a heartbeat as text, such as `45 % 900/2,000 blocks, 3 min left`; None has no text."""
    if not progress or not progress["total"]:
        return ""
    done, total = progress["done"], progress["total"]
    text = f"{100 * done / total:.0f} % {done:,.6g}/{total:,.6g} {progress['unit']}"
    gained, seconds = progress["gained"], progress["seconds"]
    if gained > 0 and seconds > 0 and done < total:
        text += f", {duration((total - done) * seconds / gained)} left"
    activity = progress.get("activity")
    return f"{text}, {activity}" if activity else text


def duration(seconds: float) -> str:
    """Return a duration as text, such as `12 s`, `3 min` or `1 h 05 min`."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60:02d} min"
