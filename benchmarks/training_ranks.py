"""Training steps over ranks: two, each on a core, against one."""

import os
import subprocess
import sys
from pathlib import Path

from measure import Work, compare

BIN = Path(sys.executable).parent
EPOCH_STEPS = 60
"""They take about a second: the speed of this or that core changes within minutes."""


def bench_training_ranks() -> None:
    """Two ranks against one rank that is pinned to one core, with the same batches."""
    worker = [sys.executable, Path(__file__).parent / "training_rank.py", "darkroom", EPOCH_STEPS]
    core = min(os.sched_getaffinity(0))
    with (
        TrainingRanks([BIN / "mpiexec", "-n", 2, *worker]) as two,
        TrainingRanks(["taskset", "-c", core, *worker]) as one,
    ):
        compare(
            "training step darkroom, 2 ranks on 2 cores",
            "steps",
            Work(two.run, EPOCH_STEPS),
            Work(one.run, EPOCH_STEPS),
            "1 rank on 1 core",
            1.8,
            turns=7,
        )


class TrainingRanks:
    """Ranks that wait in the background, and train for an epoch when they are told to."""

    def __init__(self, arguments: list[str | Path | int]) -> None:
        self._process = subprocess.Popen(
            list(map(str, arguments)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        self._answer()  # it is ready

    def __enter__(self) -> "TrainingRanks":
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def run(self) -> int:
        """An epoch; returns rank 0's peak memory in bytes."""
        assert self._process.stdin is not None
        print(file=self._process.stdin, flush=True)
        return int(self._answer())

    def _answer(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline()
