"""Training in windows of the dataset against training with the whole dataset in memory."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path

import psutil
import torch
from measure import Work, command, compare, report, timed, void

from sad_hpc.collect.stage import collect
from sad_hpc.experiment.load import load_experiment
from sad_hpc.model.architecture import make_model
from sad_hpc.model.context import Inputs
from sad_hpc.model.fused.kernel import compile_kernel
from sad_hpc.parallel.ranks import torch_process
from sad_hpc.pretrain.batches import make_batches
from sad_hpc.pretrain.engine import join_process_group, make_engine
from sad_hpc.pretrain.learner import Learner
from sad_hpc.pretrain.trainer import take_step
from sad_hpc.storage.run import Run

PAPER = Path(__file__).parent.parent / "configs/paper"
BIN = Path(sys.executable).parent
BLOCKS, WINDOW = 32, 4
STEPS = {"darkroom": 256, "darkroom_large": 128, "gaussian_bandit": 24, "miniworld": 32}
"""Steps in a turn: at least one window of each family."""
TASKS_OF_BLOCK = {"darkroom": 2048, "darkroom_large": 2048, "gaussian_bandit": 256, "miniworld": 64}
FEW = ["pretrain.holdout_tasks=64", "evaluate.tasks=4"]
SIZES = (100_000, 1_000_000, 10_000_000)
"""Tasks of the datasets whose trainings' memory is compared."""
ROWS = 3 * 2 * 16384
"""Tasks of three windows."""
READY = b"ready"


def bench_window_memory() -> None:
    """Measure the memory of a rank by the size of the dataset, and of a node by its trainings."""
    with tempfile.TemporaryDirectory() as folder:
        memory_by_size(Path(folder))


def bench_window_steps() -> None:
    """Measure steps in windows, in a process group."""
    os.environ["OMP_NUM_THREADS"] = "1"
    torch.set_num_threads(1)
    compile_kernel()
    join_process_group(torch_process())
    with tempfile.TemporaryDirectory() as folder:
        for name in STEPS:
            steps_in_windows(Path(folder), name)


def steps_in_windows(folder: Path, name: str) -> None:
    """Steps of SAD on a dataset that is read in windows, against the same with all in memory."""
    block = TASKS_OF_BLOCK[name]
    sizes = [f"data.tasks={BLOCKS * block}", f"data.block_tasks={block}", *FEW]
    collect(_run(folder, name, sizes))
    ours, whole = (
        Work(_steps(_run(folder, name, [*sizes, *windows]), STEPS[name]), STEPS[name])
        for windows in ([f"pretrain.window_blocks={WINDOW}"], [])
    )
    title = f"training step {name}, windows of {WINDOW} of {BLOCKS} blocks"
    compare(title, "steps", ours, whole, "the whole dataset in memory", 0.95)


def _run(folder: Path, name: str, overrides: list[str]) -> Run:
    return Run(load_experiment(PAPER / f"{name}.yaml", overrides), folder)


def _steps(run: Run, steps: int) -> Callable[[], None]:
    """Return a function that takes the next steps of a training."""
    experiment = run.experiment
    config = experiment.optimization("SAD").model_copy(update={"epochs": 1000})
    learner = Learner(make_model(experiment.model, Inputs.of_family(experiment.family)))
    engine = make_engine(learner, config, torch_process())
    reason = learner.use_kernel()
    assert reason is None, reason
    batches, _ = make_batches(run, "SAD", 0, config, engine.device)
    numbers = count()

    def take() -> None:
        for _, step in zip(range(steps), numbers, strict=False):
            learner.begin_step(0, step, 0)
            void(take_step(engine, batches.at(step), 1e-3, config.gradient_clipping))

    take()  # warm
    return take


def memory_by_size(folder: Path) -> None:
    """Peak memory of a process that takes the batches of three windows; memory of the node by the
    number of processes that hold the largest dataset as a whole."""
    for tasks in SIZES:
        overrides = [f"data.tasks={tasks}", "data.block_tasks=16384"]
        where = folder / str(tasks)
        collection = [BIN / "sad-hpc", "collect", PAPER / "darkroom.yaml", *overrides]
        command([BIN / "mpiexec", "-n", "2", *collection, "--runs", where], 1800)
        reader = holder("darkroom", where, [*overrides, "pretrain.window_blocks=2"])
        seconds, peak = timed(lambda reader=reader: command(reader, 1800))
        title = f"three windows of 2 blocks, darkroom, {tasks:,} tasks"
        report(title, ROWS, "tasks", seconds, peak_mib=peak / 2**20)
    for processes in (1, 2, 4):
        start = time.perf_counter()
        peak = memory_of_node(processes, holder("darkroom", where, overrides))
        seconds = time.perf_counter() - start
        title = f"{processes} trainings with darkroom, {SIZES[-1]:,} tasks, in memory: the node"
        report(title, SIZES[-1], "tasks", seconds, peak_mib=peak / 2**20)


def holder(config: str, folder: Path, overrides: list[str]) -> list[str | Path]:
    """Return the command of a process that runs `take_batches` with a config of the paper."""
    return [sys.executable, __file__, config, folder, *overrides]


def memory_of_node(processes: int, arguments: list[str | Path]) -> int:
    """Return the bytes that processes use together, each page counted once."""
    held = [
        subprocess.Popen(list(map(str, arguments)), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for _ in range(processes)
    ]
    for process in held:
        assert process.stdout is not None
        while process.stdout.readline().strip() not in (READY, b""):
            pass
    total: int = sum(psutil.Process(each.pid).memory_full_info().pss for each in held)
    for process in held:
        process.communicate()
    return total


def take_batches(config_name: str, folder: Path, overrides: list[str]) -> None:
    """Take the batches of a training without a model, and keep the dataset until the input ends."""
    join_process_group(torch_process())
    run = _run(folder, config_name, overrides)
    config = run.experiment.optimization("SAD")
    batches, _ = make_batches(run, "SAD", 0, config, torch.device("cpu"))
    for step in range(ROWS // config.batch_size):
        batches.at(step)
    print(READY.decode(), flush=True)
    if config.window_blocks is None:
        sys.stdin.read()


if __name__ == "__main__":
    if sys.argv[1:]:
        take_batches(sys.argv[1], Path(sys.argv[2]), sys.argv[3:])
    else:
        bench_window_memory()
        bench_window_steps()
