"""Time to quality: seconds of a core until a model is nearly Bayes-optimal in new tasks.

A tenth of the training tasks is left out (`pretrain.validation_tasks`).  After each epoch the model
plays offline in these tasks.  The time is that of training up to the first epoch whose return is
QUALITY of the Bayes-optimal learner's under the same contexts.
"""

import itertools
import json
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from measure import command, report

from sad_hpc.evaluate.ideal import ideal_returns
from sad_hpc.experiment.load import load_experiment
from sad_hpc.pretrain.examples import Examples
from sad_hpc.pretrain.training_columns import TrainingColumns
from sad_hpc.pretrain.validation import TASKS
from sad_hpc.storage.run import Run
from sad_hpc.storage.stage_folder import METRICS
from sad_hpc.tasks.tabular import TabularFamily

CONFIGS = Path(__file__).parent.parent / "configs"
SAD_HPC = Path(sys.executable).parent / "sad-hpc"
QUALITY = 0.95
FASTER = 5.0
"""Target of the ratio of times."""
LIMIT_SECONDS = 1200
"""Time limit of a training."""

FAMILIES = {"darkroom": (49, 24_010), "darkroom_large": (100, 25_000), "key_to_door": (81, 32_400)}
"""Labels of a task, and tasks of the dataset."""
SHARED = [
    "rows=[SAD]", "seeds=[100]", "data.seed=100", "model.dropout=0", "pretrain.schedule=cosine",
    "pretrain.resample_probability=0.5", "pretrain.validation_tasks=0.1",
]  # fmt: skip
RECIPES = {
    "AdamW": ["pretrain.epochs=20"],
    "NorMuon": [
        "pretrain.epochs=8", "pretrain.optimizer=normuon", "pretrain.learning_rate=0.006",
        "pretrain.betas=[0.9,0.95]", "pretrain.warmup=0.05",
    ],
}  # fmt: skip


def bench_quality() -> None:
    """Train each family by both recipes, and compare the times to quality."""
    for name, (queries, tasks) in FAMILIES.items():
        sizes = [f"data.queries_per_task={queries}", f"data.tasks={tasks}"]
        with tempfile.TemporaryDirectory() as folder:
            times = {
                recipe: seconds_to_quality(name, [*SHARED, *sizes, *settings], Path(folder))
                for recipe, settings in RECIPES.items()
            }
        report(
            name=f"time to quality, {name}, NorMuon",
            size=1,
            unit="models",
            seconds=times["NorMuon"],
            reference=f"AdamW, {times['AdamW']:.4g} s",
            ratio=times["AdamW"] / times["NorMuon"],
            target=FASTER,
        )


def seconds_to_quality(name: str, settings: list[str], runs: Path) -> float:
    """Train one model; infinity if no epoch reaches the quality."""
    config = CONFIGS / f"{name}.yaml"
    run = Run(load_experiment(config, settings), runs)
    for stage in (["collect"], ["pretrain", "--row", "SAD", "--seed", "100"]):
        arguments = [SAD_HPC, *stage, config, *settings, "--runs", runs]
        command(arguments, LIMIT_SECONDS, OMP_NUM_THREADS="1")
    wanted = QUALITY * bayes_optimal_return(run)
    lines = (run.checkpoint("SAD", 100).path / METRICS).read_text().splitlines()
    epochs = [each for each in map(json.loads, lines) if "epoch" in each]
    for each, seconds in zip(
        epochs, itertools.accumulate(each["seconds"] for each in epochs), strict=True
    ):
        if each["validation_return"] >= wanted:
            return seconds
    return float("inf")


def bayes_optimal_return(run: Run) -> float:
    """The mean return of the Bayes-optimal learner under the contexts of validation."""
    experiment = run.experiment
    examples = Examples.load(TrainingColumns(run, "SAD"), torch.device("cpu"))
    context, parameters = examples.validation_contexts(TASKS)
    family = experiment.family
    assert isinstance(family, TabularFamily)
    found = ideal_returns(
        family, family.mdps(parameters), context, experiment.evaluate, np.random.default_rng(0)
    )
    return float(found["offline"][1].mean())


if __name__ == "__main__":
    bench_quality()
