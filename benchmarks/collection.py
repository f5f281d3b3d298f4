"""Whole collections: `mpiexec -n R sad-hpc collect`, from the start of the command to its end."""

import shutil
import statistics
import sys
import tempfile
from pathlib import Path

from measure import REPEATS, Work, command, compare, report, timed

from sad_hpc.experiment_file import load_experiment
from sad_hpc.run import Run
from sad_hpc.tasks import make_family
from sad_hpc.tasks.base import SPLITS

HERE = Path(__file__).parent
PAPER = HERE.parent / "configs/paper"
BIN = Path(sys.executable).parent

SECONDS = {"darkroom": 0.5, "darkroom_large": 3.0, "gaussian_bandit": 8.0}
"""Targets for the paper's datasets, on two ranks."""

IMAGE_TASKS = 512

SMALL = ["evaluate.tasks=4", "pretrain.holdout_tasks=1", "pretrain.batch_size=1"]
"""Other stages' settings that a small dataset has to fit."""


def bench_collection() -> None:
    """The paper's tabular datasets; two ranks against one; Miniworld against a bare renderer."""
    for name, seconds in SECONDS.items():
        whole_dataset(name, seconds)
    start_up()
    two, one = (Collection("gaussian_bandit", ranks, ["data.tasks=50000"]) for ranks in (2, 1))
    compare("collect gaussian_bandit, 2 ranks", "tasks", two.work, one.work, "1 rank", 1.8)
    miniworld()


class Collection:
    """A collection that begins anew every time."""

    def __init__(self, name: str, ranks: int, overrides: list[str]) -> None:
        path = PAPER / f"{name}.yaml"
        self.runs = Path(tempfile.mkdtemp(prefix="sad_hpc-bench-"))
        self.run = Run(load_experiment(path, overrides), self.runs)
        self._arguments = [
            BIN / "mpiexec", "-n", str(ranks), BIN / "sad-hpc", "collect", path, *overrides,
            "--runs", self.runs,
        ]  # fmt: skip
        self.work = Work(self._collect, self.run.experiment.data.tasks)
        self._collect()  # compiles, where that is still to be done

    def _collect(self) -> int:
        shutil.rmtree(self.runs)
        return command(self._arguments)

    @property
    def stage_seconds(self) -> float:
        """Of the last collection, without the start of its processes."""
        marker = self.run.data().done or {}
        return sum(marker["throughput"][split]["seconds"] for split in SPLITS)


def whole_dataset(name: str, target: float) -> None:
    """The command and, within it, the stage: kernels, HDF5, checks and renames."""
    collection = Collection(name, 2, [])
    runs = [(*timed(collection.work.run), collection.stage_seconds) for _ in range(REPEATS)]
    command_seconds, peaks, stage_seconds = zip(*runs, strict=True)
    size = collection.work.size
    report(
        f"collect {name}, 2 ranks, without start-up",
        size,
        "tasks",
        statistics.median(stage_seconds),
        target_seconds=target,
    )
    report(
        f"collect {name}, 2 ranks",
        size,
        "tasks",
        statistics.median(command_seconds),
        peak_mib=max(peaks) / 2**20,
    )
    shutil.rmtree(collection.runs)


def start_up() -> None:
    """`sad-hpc collect` of a dataset that is complete."""
    collection = Collection("darkroom", 1, ["data.tasks=98", *SMALL])
    arguments = collection._arguments[3:]
    seconds = statistics.median(timed(lambda: command(arguments))[0] for _ in range(REPEATS))
    report("start-up of sad-hpc collect", 1, "starts", seconds, target_seconds=1.0)


def miniworld() -> None:
    """All that a collection does on two cores, against rendering alone on two cores."""
    ours = Collection("miniworld", 2, [f"data.tasks={IMAGE_TASKS}", "data.block_tasks=32", *SMALL])
    experiment = ours.run.experiment
    family = make_family(experiment.task)
    tasks = sum(family.n_tasks(split, IMAGE_TASKS) for split in SPLITS)
    frames = tasks * (2 * experiment.task.horizon + 3)  # contexts, episodes, three query states
    bare = [BIN / "mpiexec", "-n", "2", sys.executable, HERE / "bare_rendering.py", frames // 2]
    compare(
        "collect miniworld, 2 ranks",
        "frames",
        Work(ours.work.run, frames),
        Work(lambda: command(bare), frames),
        "MiniWorldEnv.render_obs alone, 2 processes",
        1.0,
    )


if __name__ == "__main__":
    bench_collection()
