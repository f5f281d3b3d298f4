"""The checks of a launch before anything starts; each failure is one line with its fix."""

import shutil
from collections.abc import Collection
from pathlib import Path

from sad_hpc.errors import UserError, first_few
from sad_hpc.experiment.experiment import Element
from sad_hpc.experiment.sections import GPT2
from sad_hpc.launch.cancel import clusters_of, jobs_of
from sad_hpc.launch.cluster import ClusterConfig
from sad_hpc.launch.controller import visible_gpus
from sad_hpc.launch.graph import Step
from sad_hpc.launch.slurm import squeue
from sad_hpc.storage.run import Run


def check_results(run: Run, results: Path, replace: bool) -> None:
    """Refuse to replace results of other settings without `--replace`; see `check_overwrite`."""
    if not replace and (results / run.experiment.name).exists():
        from sad_hpc.aggregate.results_folder import (
            check_overwrite,  # importing pandas takes a second
        )

        check_overwrite(run.experiment, results)


def check_inputs(run: Run, kept: Collection[Element]) -> None:
    """Check the parts of a run that no job of it makes.

    Args:
        run: the run.
        kept: the (row, seed)s whose results are kept.

    Raises:
        UserError: a model class, another experiment's models or imported contexts are missing.
    """
    _check_architectures(run)
    _check_models(run, kept)
    _check_contexts(run)


def _check_architectures(run: Run) -> None:
    """Check that models of other packages are models before jobs collect their data."""
    for row in run.experiment.by_row:
        architecture = run.experiment.of_row(row)[0].model.architecture
        if architecture != GPT2:
            from sad_hpc.model.architecture import model_class  # importing torch takes seconds

            model_class(architecture)


def _check_models(run: Run, kept: Collection[Element]) -> None:
    """Check that the other experiment's models exist, since no job of this run waits for them."""
    if run.experiment.pretrained is None:
        return
    missing = [
        f"{row} seed {seed}"
        for row, seed in run.experiment.elements
        if (row, seed) not in kept
        and run.evaluation(row, seed).done is None
        and run.checkpoint(row, seed).done is None
    ]
    if missing:
        source = Run(run.experiment.source, run.runs)
        raise UserError(
            f"{run.experiment.name} evaluates the models of {source.experiment.name}, but "
            f"{source.path} lacks {first_few(missing, 3)}: launch that experiment first, with the "
            "same --runs and the settings of 'pretrained' here"
        )


def _check_contexts(run: Run) -> None:
    """Check that imported contexts exist before collect needs them."""
    for own in run.with_datasets():
        experiment = own.experiment
        needed = experiment.data.imported_contexts or not experiment.family.has_environment
        if needed and own.data().done is None:
            from sad_hpc.dataset.imported import ImportedContexts  # importing Numba takes a second

            ImportedContexts.load(own.contexts, experiment)


def check_resources(steps: list[Step], cluster: ClusterConfig) -> None:
    """Check the incomplete steps against the cluster's settings before any of them starts."""
    for step in steps:
        if step.complete:
            continue
        if cluster.executor == "local":
            resources = cluster.resources(step.stage)
            visible_gpus(resources.gpus * resources.ranks)
        if step.stage == "pretrain":
            step.run.experiment.pretrain.check_ranks(cluster.pretrain.ranks)


def check_nothing_is_queued(run: Run) -> None:
    """Refuse local execution while Slurm has jobs of this run."""
    if shutil.which("squeue") is None:
        return
    for cluster in clusters_of(run):
        try:
            queue = squeue(cluster)
        except UserError:  # Slurm does not answer; the locks still keep a second writer out
            continue
        if jobs_of(run, queue):
            raise UserError(
                f"{run.path} has jobs in Slurm's queue: continue with --cluster slurm, or "
                f"`sad-hpc cancel {run.path}`"
            )
