"""Training steps on two cores against one: two ranks of a training, and two trainings."""

import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

from measure import Work, compare

BIN = Path(sys.executable).parent
EPOCH_STEPS = 60
WORKER = [sys.executable, Path(__file__).parent / "training_rank.py", "darkroom", EPOCH_STEPS]
"""Its epochs take about a second: the speed of this or that core changes within minutes."""


def bench_training_ranks() -> None:
    """Two ranks against one rank that is pinned to one core, with the same batches."""
    core = min(os.sched_getaffinity(0))
    with (
        TrainingRanks([BIN / "mpiexec", "-n", 2, *WORKER]) as two,
        TrainingRanks(["taskset", "-c", core, *WORKER]) as one,
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


def bench_packed_trainings() -> None:
    """Two trainings that share a node as in a pack, each pinned to a core, against one of them.

    A target of 1.82 is two trainings in 1.1 times the time of one.
    """
    cores = sorted(os.sched_getaffinity(0))[:2]
    with ExitStack() as stack:
        each = [
            stack.enter_context(TrainingRanks(["taskset", "-c", core, *WORKER])) for core in cores
        ]

        def both() -> int:
            for training in each:
                training.begin()
            return max(training.end() for training in each)

        compare(
            "training step darkroom, 2 trainings on 2 cores",
            "steps",
            Work(both, 2 * EPOCH_STEPS),
            Work(each[0].run, EPOCH_STEPS),
            "1 training on 1 core",
            1.82,
            turns=7,
        )


class TrainingRanks:
    """Ranks in the background that train for an epoch on request."""

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
        self.begin()
        return self.end()

    def begin(self) -> None:
        """Begins an epoch."""
        assert self._process.stdin is not None
        print(file=self._process.stdin, flush=True)

    def end(self) -> int:
        """Waits for its end; see `run`."""
        return int(self._answer())

    def _answer(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline()
