"""Whole collections: `mpiexec -n R sad-hpc collect`, from the start of the command to its end."""

import statistics
import sys
import tempfile
from pathlib import Path

from measure import REPEATS, Work, command, compare, report, timed

from sad_hpc.experiment.load import load_experiment
from sad_hpc.storage.run import Run
from sad_hpc.tasks.base import SPLITS, make_family

HERE = Path(__file__).parent
PAPER = HERE.parent / "configs/paper"
BIN = Path(sys.executable).parent

SECONDS = {"darkroom": 0.5, "darkroom_large": 3.0, "gaussian_bandit": 8.0}
"""Targets for the paper's datasets, on two ranks."""

LARGEST = "gaussian_bandit"
"""Its collection takes turns with that on one rank."""

IMAGE_TASKS = 256

SMALL = ["evaluate.tasks=4", "pretrain.holdout_tasks=1", "pretrain.batch_size=1"]
"""Other stages' settings that a small dataset has to fit."""


def bench_collection() -> None:
    """The paper's tabular datasets; two ranks against one; Miniworld against a bare renderer."""
    with tempfile.TemporaryDirectory() as folder:
        for name, seconds in SECONDS.items():
            whole_dataset(Path(folder), name, seconds)
        start_up(Path(folder))
        miniworld(Path(folder))


class Collection:
    """A collection that begins anew, in a folder of its own, every time."""

    def __init__(self, folder: Path, name: str, ranks: int, *overrides: str) -> None:
        self._config, self._folder = [PAPER / f"{name}.yaml", *overrides], folder
        self._ranks = ranks
        self.experiment = load_experiment(self._config[0], list(overrides))
        self.work = Work(self._collect, self.experiment.data.tasks)

    def _collect(self) -> int:
        self._runs = Path(tempfile.mkdtemp(dir=self._folder))
        return self.run()

    def run(self) -> int:
        """Run the command in the last folder; a second run there finds a complete dataset."""
        start = [BIN / "mpiexec", "-n", str(self._ranks)] if self._ranks > 1 else []
        return command([*start, BIN / "sad-hpc", "collect", *self._config, "--runs", self._runs])

    @property
    def stage_seconds(self) -> float:
        """Seconds of the last collection, without the start of its processes."""
        marker = Run(self.experiment, self._runs).data().done or {}
        return sum(marker["throughput"][split]["seconds"] for split in SPLITS)


def whole_dataset(folder: Path, name: str, target: float) -> None:
    """The command and, within it, the stage: kernels, HDF5, checks and renames."""
    two, *one = (Collection(folder, name, ranks) for ranks in ((2, 1) if name == LARGEST else (2,)))
    two.work.run()  # compiles, where that is still to be done
    runs, alone = [], []
    for _ in range(REPEATS):
        runs.append((*timed(two.work.run), two.stage_seconds))
        for collection in one:
            collection.work.run()
            alone.append(collection.stage_seconds)
    seconds, peaks, stages = zip(*runs, strict=True)
    size, title = two.work.size, f"collect {name}, 2 ranks"
    stage, command = statistics.median(stages), statistics.median(seconds)
    report(f"{title}, the stage", size, "tasks", stage, target_seconds=target)
    report(f"{title}, the command", size, "tasks", command, peak_mib=max(peaks) / 2**20)
    if alone:
        reference = {"reference": "1 rank", "reference_rate": size / statistics.median(alone)}
        ratio = statistics.median(alone) / stage
        report(f"{title}, the stage", size, "tasks", stage, **reference, ratio=ratio, target=1.8)


def start_up(folder: Path) -> None:
    """`sad-hpc collect` of a dataset that is complete."""
    collection = Collection(folder, "darkroom", 1, "data.tasks=98", *SMALL)
    collection.work.run()
    seconds = statistics.median(timed(collection.run)[0] for _ in range(REPEATS))
    report("start-up of sad-hpc collect", 1, "starts", seconds, target_seconds=1.0)


def miniworld(folder: Path) -> None:
    """Measure a whole collection on two cores against rendering alone on two cores."""
    size = [f"data.tasks={IMAGE_TASKS}", "data.block_tasks=16"]
    ours = Collection(folder, "miniworld", 2, *size, *SMALL)
    family = make_family(ours.experiment.task)
    tasks = sum(family.n_tasks(split, IMAGE_TASKS) for split in SPLITS)
    horizon, queries = ours.experiment.task.horizon, ours.experiment.data.queries_per_task
    frames = tasks * (2 * horizon + 3 * queries)  # contexts, episodes, query states
    bare = [BIN / "mpiexec", "-n", "2", sys.executable, HERE / "bare_rendering.py"]
    compare(
        "collect miniworld, 2 ranks",
        "frames",
        Work(ours.work.run, frames),
        Work(lambda: command([*bare, str(frames // 2)]), frames),
        "MiniWorldEnv.render_obs alone, 2 processes",
        1.0,
    )


if __name__ == "__main__":
    bench_collection()
