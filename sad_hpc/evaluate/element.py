"""The evaluation of one (method, seed): one element of the array job, one HDF5 file."""

import numpy as np

from sad_hpc.dataset.reader import Arrays, load_complete, read_columns
from sad_hpc.evaluate.bandit import evaluate_bandit
from sad_hpc.evaluate.policy import load_model
from sad_hpc.evaluate.result import RESULT, write_result
from sad_hpc.evaluate.tabular import evaluate_tabular
from sad_hpc.examples import context_parts
from sad_hpc.progress import Progress
from sad_hpc.run import Run
from sad_hpc.tasks import BanditFamily, Miniworld, TabularFamily, TaskFamily, make_family


def evaluate(run: Run, method: str, seed: int) -> None:
    """Evaluates the trained model of one (method, seed) on test tasks and writes `result.h5`.

    Raises:
        CheckpointError: the model is not trained, or damaged.
        DatasetError: the test split is missing, damaged, or of another config.
    """
    folder = run.evaluation(method, seed)
    if folder.done is not None:
        return
    experiment, settings = run.experiment, run.experiment.evaluate
    model = load_model(run, method, seed)
    run.begin(folder, experiment.evaluate_config(method, seed))
    family = make_family(experiment.task)
    columns = _test_columns(run, family, settings.tasks)
    generator = np.random.default_rng([settings.seed, seed])
    if isinstance(family, TabularFamily):
        with Progress(folder, settings.online_episodes + 1, "episodes") as progress:
            results = evaluate_tabular(model, family, columns, settings, generator, progress)
    elif isinstance(family, BanditFamily):
        with Progress(folder, family.config.horizon, "pulls") as progress:
            results = evaluate_bandit(model, family, columns, settings, generator, progress)
    elif isinstance(family, Miniworld):
        from sad_hpc.evaluate.poses import evaluate_poses  # needs OpenGL

        with Progress(folder, settings.online_episodes + 1, "episodes") as progress:
            results = evaluate_poses(model, family, columns, settings, generator, progress)
    else:
        raise TypeError(f"no evaluation for {type(family).__name__}")
    attributes = {
        "signature": experiment.evaluate_signature(method, seed),
        "config": experiment.model_dump(mode="json"),
        "method": method,
        "seed": seed,
        "task_family": family.name,
    }
    tasks = {name: columns[f"tasks/{name}"] for name in ("index", "parameters")}
    write_result(folder.path / RESULT, attributes, tasks, results)
    folder.complete(
        outputs=[RESULT],
        **{
            f"{mode}_{result.metric}": float(result.values[:, -result.headline :].mean())
            for mode, result in results.items()
        },
    )


def _test_columns(run: Run, family: TaskFamily, n_tasks: int) -> Arrays:
    """Contexts (Algorithm 1) and parameters of the first test tasks."""
    experiment = run.experiment
    folder = run.data().path / "test"
    manifest = load_complete(folder, experiment.data_signature(), experiment.data_config())
    names = [f"context/{part}" for part in context_parts(family)]
    return read_columns(folder, manifest, [*names, "tasks/index", "tasks/parameters"], n_tasks)
