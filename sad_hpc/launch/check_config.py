"""The check of a config by `sad-hpc doctor CONFIG`: its tasks, and the cost of their data.

`python -m sad_hpc.launch.check_config CONFIG SECONDS` runs it in a separate process, since an
environment may hang, end its process, or print text.
"""

import faulthandler
import sys
import time
from pathlib import Path

from sad_hpc.dataset.schema import are_images
from sad_hpc.dataset.writer import arrays_content
from sad_hpc.distill import Block, make_block
from sad_hpc.errors import UserError
from sad_hpc.experiment.experiment import Experiment
from sad_hpc.experiment.families import TaskConfig
from sad_hpc.experiment.load import load_experiment
from sad_hpc.experiment.sections import DataConfig
from sad_hpc.parallel.process import keep_streams_open
from sad_hpc.storage.progress import duration
from sad_hpc.storage.run import Run
from sad_hpc.tasks.base import SPLITS, TaskFamily, make_family
from sad_hpc.tasks.environments.config import EnvironmentConfig
from sad_hpc.tasks.environments.functional import Functional
from sad_hpc.tasks.environments.trials import idle_parameters
from sad_hpc.tasks.simulated import SimulatedFamily
from sad_hpc.tasks.tabular import StochasticFamily, TabularFamily
from sad_hpc.user_code import UserCode

TRIAL_TASKS = 4
"""Tasks that are distilled to measure the time of one."""

COMPILED_TRIAL_TASKS = 128
"""Tasks of this trial for functional environments, which step all tasks together."""

LONG_BLOCK_MINUTES = 10
"""Blocks above this duration get a warning; progress and saved work advance by whole blocks."""

FEW_STEPS = {"adamw": 600, "normuon": 200}
"""Trainings below this number of steps, by optimizer, get a warning."""

FEW_TASKS = 1000
"""Datasets below this number of tasks get a warning: a model soon memorizes them."""


def check_config(path: Path) -> str:
    """Load a config and make some of its tasks.

    Returns:
        one line about the tasks, the cost of the data and the training.

    Raises:
        UserError: the config or the environment has an error; the line names the fix.
    """
    experiment = load_experiment(path, [])
    family = make_family(experiment.task)
    found = [family.description]
    if isinstance(family, SimulatedFamily) and family.has_environment:
        kinds = _kinds_of_data(experiment)
        for row, data in kinds.items():
            if data.has_known_tasks:
                found.append(f"data{f' of {row}' * (len(kinds) > 1)}: {_cost(family, data)}")
        if not experiment.seeds_share_data and len(experiment.seeds) > 1:
            found.append(f"each of the {len(experiment.seeds)} seeds has data of its own")
    elif isinstance(family, TabularFamily):
        for split in SPLITS:
            family.mdps(family.distinct[split][:1])
            found.append(f"{len(family.distinct[split]):,} tasks for {split}")
        if isinstance(family, StochasticFamily):  # its rewards may miss data.return_threshold
            make_block(family, _trial_data(experiment.data), "train", 0)
    if isinstance(experiment.task, EnvironmentConfig) and not isinstance(family, Functional):
        found += [
            f"{name} has no effect on random play: check that the environment uses it; if other "
            "values are derived from it, use task.vary instead of task.attributes"
            for name in idle_parameters(experiment.task)
        ]
    return "; ".join([*found, _training(experiment)])


def _kinds_of_data(experiment: Experiment[TaskConfig]) -> dict[str, DataConfig]:
    """Return the settings of the datasets, apart from their seeds, by the first row of each."""
    run, kinds = Run(experiment, Path("runs")), dict[str, DataConfig]()
    for row, seed in experiment.elements:
        data = run.of_element(row, seed)[0].experiment.data.model_copy(update={"seed": 0})
        if data not in kinds.values():
            kinds[row] = data
    return kinds


def _training(experiment: Experiment[TaskConfig]) -> str:
    if experiment.pretrained is not None:
        return "training: none, another experiment's models are evaluated"
    data, steps = experiment.data, experiment.training_steps
    few = FEW_STEPS[experiment.pretrain.optimizer]
    test = data.tasks - experiment.family.n_tasks("train", data.tasks)
    told = (
        f"training: {data.tasks:,} tasks with {data.queries_per_task:,} labels, less {test:,} for "
        f"test and {experiment.pretrain.holdout_tasks:,} held out; {steps:,} steps"
    )
    if data.tasks < FEW_TASKS:
        told += f"; fewer than {FEW_TASKS:,} tasks may be too few"
    elif steps < few:
        told += f"; fewer than {few} may be too few: raise data.tasks or pretrain.epochs"
    return told


def _trial(family: TaskFamily, data: DataConfig) -> tuple[Block, float]:
    """Distill a few tasks, and return their block and the seconds of a core for each."""
    few = _trial_data(data)
    if isinstance(family, Functional):
        few = _trial_data(data, min(COMPILED_TRIAL_TASKS, data.block_tasks, data.tasks))
        make_block(family, few, "train", 0)  # compiles
    started = time.process_time()  # other checks and jobs on this machine do not count
    block = make_block(family, few, "train", 0)
    return block, (time.process_time() - started) / len(block.arrays["transitions/rewards"])


def _cost(family: TaskFamily, data: DataConfig) -> str:
    block, seconds = _trial(family, data)
    whole = duration(seconds * data.tasks)
    cost = f"{seconds:.2g} s a task, about {whole} of a core for {data.tasks:,} tasks"
    if data.return_threshold is not None and not family.sparse_reward:
        cost += (
            "; only query states where some action returns at least data.return_threshold="
            f"{data.return_threshold:g} get labels (null: all)"
        )
    tasks = min(data.block_tasks, data.tasks)
    if seconds * tasks > 60 * LONG_BLOCK_MINUTES:
        fewer = max(1, int(60 / seconds))
        cost += (
            f"; a block of {tasks:,} takes {duration(seconds * tasks)}, and a job that ends before "
            f"it is complete loses it: set data.block_tasks={fewer}, which takes a minute"
        )
    rewards = block.arrays["transitions/rewards"]
    ended = "transitions/ends" in block.arrays and block.arrays["transitions/ends"].any()
    if rewards.min() == rewards.max() and not ended:  # returns differ where episodes end
        cost += (
            f"; all rewards of {rewards.size:,} random transitions are {rewards.min():g}, so "
            "labels may be arbitrary: try a longer data.trust_horizon or other rewards"
        )
    return cost if family.frame_shape is None else f"{cost}; {_images(family, data, block)}"


def _images(family: TaskFamily, data: DataConfig, block: Block) -> str:
    """Return the bytes of the images, of which `block` has a sample."""
    sample = len(block.arrays["transitions/rewards"])
    whole = sum(array.nbytes for array in block.arrays.values() if are_images(array)) / sample
    context = block.arrays["transitions/states"].nbytes / sample
    group = family.labels_of(data)[0]
    trained = context + block.arrays[f"labels/{group}/query_states"].nbytes / sample
    stored = len(arrays_content(block.arrays, {})) / sample
    tasks = family.n_tasks("train", data.tasks)
    block_bytes = whole * min(data.block_tasks, tasks)
    return (
        f"images: {_megabytes(context)} a context; in memory {_megabytes(trained * tasks)} for a "
        f"training rank and {_megabytes(block_bytes)} for a collecting rank "
        f"(data.block_tasks={data.block_tasks}); about {_megabytes(stored * data.tasks)} on disk"
    )


def _megabytes(number: float) -> str:
    size = number / 1e6
    return f"{size:,.0f} MB" if size >= 100 else f"{size:.2g} MB"


def _trial_data(data: DataConfig, tasks: int = TRIAL_TASKS) -> DataConfig:
    return data.model_copy(update={"block_tasks": tasks})


if __name__ == "__main__":
    keep_streams_open()
    faulthandler.dump_traceback_later(float(sys.argv[2]), exit=True)
    try:
        with UserCode(lambda: f"the trial of {sys.argv[1]}", watched=False):
            outcome = check_config(Path(sys.argv[1]))
    except UserError as error:
        sys.exit(str(error))
    print(outcome)
