"""Measurements: medians of alternating runs, printed as JSON lines.

A piece of work and its reference take turns (A B A B ...), so that both see the same machine.  A
ratio above 1 means that this code is faster than the reference.
"""

import json
import os
import signal
import statistics
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from sad_hpc.collect.throughput import peak_memory

REPEATS = 5
LIMIT_SECONDS = 300
"""Default time limit of a command."""
POLL_SECONDS = 0.1
"""Interval between readings of a command's memory."""
LINES: list[dict[str, Any]] = []
"""The measurements of this process."""


@dataclass(frozen=True)
class Work:
    """Something that takes time, and how much it does in one run."""

    run: Callable[[], int | None]
    """Returns its peak memory in bytes where it is a command; else this process's is taken."""
    size: float
    """Units of work in a run."""


def compare(
    name: str,
    unit: str,
    ours: Work,
    reference: Work,
    reference_name: str,
    target: float | None = None,
    turns: int = REPEATS,
) -> dict[str, Any]:
    """Prints the speed of `ours` and its ratio to that of `reference`.

    Args:
        name: of the measurement.
        unit: of the works' sizes, in the plural.
        ours: this code.
        reference: what it is compared with; its size may be another.
        reference_name: in words.
        target: the ratio that is aimed at.
        turns: of each of the two.
    """
    runs = [(timed(ours.run), timed(reference.run)) for _ in range(turns)]
    mine = statistics.median(pair[0][0] for pair in runs)
    theirs = statistics.median(pair[1][0] for pair in runs)
    ratio = (ours.size / mine) / (reference.size / theirs)
    return report(
        name=name,
        size=ours.size,
        unit=unit,
        seconds=mine,
        peak_mib=max(pair[0][1] for pair in runs) / 2**20,
        reference=reference_name,
        reference_rate=reference.size / theirs,
        ratio=ratio,
        target=target,
    )


def report(name: str, size: float, unit: str, seconds: float, **more: Any) -> dict[str, Any]:
    """Prints one measurement as a line of JSON."""
    line = {"name": name, "size": size, "unit": unit, "seconds": seconds, "rate": size / seconds}
    line |= {key: value for key, value in more.items() if value is not None}
    line = {key: _short(value) for key, value in line.items()}
    print(json.dumps(line), flush=True)
    LINES.append(line)
    return line


def timed(run: Callable[[], int | None]) -> tuple[float, int]:
    """Seconds of a run, and its peak memory in bytes."""
    Path("/proc/self/clear_refs").write_text("5")  # the peak is measured from now on
    start = time.perf_counter()
    peak = run()
    seconds = time.perf_counter() - start
    return seconds, peak if peak is not None else peak_memory()


def command(
    arguments: Sequence[str | Path], limit_seconds: float = LIMIT_SECONDS, **environment: str
) -> int:
    """Runs a command to its end; returns the memory of its largest process, in bytes.

    Raises:
        CalledProcessError: it failed, or took longer than the limit; its output is printed.
    """
    text = [str(argument) for argument in arguments]
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(
            text,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, **environment},
            start_new_session=True,
        )
        timer = threading.Timer(limit_seconds, os.killpg, (process.pid, signal.SIGKILL))
        timer.start()
        peaks, ended = [0], threading.Event()
        threading.Thread(target=_watch, args=(process.pid, ended, peaks)).start()
        process.wait()
        ended.set()
        timer.cancel()
        if process.returncode:
            output.seek(0)
            print(output.read())
            raise subprocess.CalledProcessError(process.returncode, text)
    return max(peaks)


def _watch(parent: int, ended: threading.Event, peaks: list[int]) -> None:
    """Adds peaks of a process and its children; getrusage would count its state before `exec`."""
    while not ended.wait(POLL_SECONDS):
        peaks.extend(map(_peak_if_there, _family(parent)))


def _family(parent: int) -> list[int]:
    try:
        return [parent, *(child.pid for child in psutil.Process(parent).children(recursive=True))]
    except psutil.NoSuchProcess:
        return [parent]


def _peak_if_there(process: int) -> int:
    try:
        return peak_memory(process)
    except OSError:
        return 0


def void(_: object) -> None:
    """For work that returns something."""


def _short(value: Any) -> Any:
    return float(f"{value:.4g}") if isinstance(value, float) else value
