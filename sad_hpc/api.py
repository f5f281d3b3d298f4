"""The stages in Python, one function each; the commands of `sad-hpc` call the same functions.

    from sad_hpc import api

    run = api.load_run("configs/quickstart.yaml", "data.tasks=2401")
    api.collect(run)
    api.train(run)
    api.evaluate(run)
    table = api.table(run)

Each stage skips what is complete and resumes what was interrupted.  All run in this process; a
launch (`sad-hpc launch`) runs them in parallel.
"""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from sad_hpc.errors import UserError

if TYPE_CHECKING:
    import pandas as pd

    from sad_hpc.experiment.experiment import Element
    from sad_hpc.storage.run import Run


def load_run(config: str | Path, *settings: str, runs: str | Path = "runs") -> "Run":
    """Return the run of a config.

    Args:
        config: a config file.
        settings: words such as `data.tasks=2000`, as on the command line.
        runs: folder of all runs.

    Raises:
        ConfigError: the config or a setting is wrong; the message names the key and the fix.
    """
    from sad_hpc.experiment.load import load_experiment
    from sad_hpc.storage.run import Run

    return Run(load_experiment(Path(config), list(settings)), Path(runs))


def collect(run: "Run") -> None:
    """Make the datasets of a run; under `mpiexec` all ranks share the work.

    Raises:
        UserError: an environment fails, or a file cannot be written.
    """
    from sad_hpc.launch.graph import collect_with_policy

    for own in run.with_datasets():
        collect_with_policy(own)


def train(run: "Run", elements: Iterable["Element"] | None = None) -> None:
    """Train the models of a run whose datasets are complete.

    Args:
        run: the run.
        elements: the (row, seed)s; None: all.

    Raises:
        UserError: a dataset is missing, a training diverges, or a file cannot be written.
    """
    from sad_hpc.launch.graph import pretrain_with_score

    for row, seed in run.experiment.elements if elements is None else elements:
        own, method = run.of_element(row, seed)
        pretrain_with_score(own, method, seed)


def evaluate(
    run: "Run",
    elements: Iterable["Element"] | None = None,
    failed: Callable[[UserError], None] | None = None,
) -> None:
    """Evaluate trained models of a run on test tasks.

    Args:
        run: the run.
        elements: the (row, seed)s; None: all.
        failed: called with the error of an element, whereupon the others go on; None: the first
            error is raised.

    Raises:
        UserError: a model is missing, or a file cannot be written.
    """
    from sad_hpc.evaluate.stage import evaluate as evaluate_element

    for row, seed in run.experiment.elements if elements is None else elements:
        own, method = run.of_element(row, seed)
        try:
            evaluate_element(own, method, seed)
        except UserError as error:
            if failed is None:
                raise
            failed(error)


def table(run: "Run", results: str | Path = "results") -> "pd.DataFrame":
    """Write results.h5, tables and figures of an evaluated run, and return all its values.

    Args:
        run: the run.
        results: folder of all results; the run's are in a folder of the experiment's name.

    Returns:
        one line for each value, see `sad_hpc.results.load`.

    Raises:
        UserError: an element is not evaluated, or the folder holds results of other settings.
    """
    from sad_hpc.aggregate.stage import aggregate
    from sad_hpc.results import load

    return load(aggregate(run, Path(results)))
