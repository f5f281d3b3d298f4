"""`sad-hpc launch --dry-run`: write and print every submission script without starting a job."""

import shlex
import shutil
import subprocess
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from sad_hpc.errors import UserError
from sad_hpc.launch.cluster import ClusterConfig
from sad_hpc.launch.environment import job_environment, submission_environment
from sad_hpc.launch.executor import StageExecutor
from sad_hpc.launch.graph import Step
from sad_hpc.launch.plan import SubmitBatch, batches, dependency
from sad_hpc.launch.slurm import LARGEST_ARRAY, QueueEntry, largest_array, squeue
from sad_hpc.launch.srun import setup_lines
from sad_hpc.launch.submission import QueuedSteps
from sad_hpc.storage.files import atomic_path
from sad_hpc.storage.run import Run


def write_scripts(
    run: Run,
    steps: list[Step],
    cluster: ClusterConfig,
    command_line: Sequence[str],
    replace: bool,
    tables_are_missing: bool,
) -> None:
    """Write and print <run>/submit/<batch>.sh for each batch of a launch, and the steps' number.

    Args:
        run: the run.
        steps: the steps of `graph(run)`.
        cluster: cluster settings.
        command_line: CONFIG and overrides, for machines without Slurm.
        replace: whether aggregate may drop and replace results of other settings.
        tables_are_missing: whether aggregate runs although its marker exists.

    Raises:
        UserError: the folder cannot be written.
    """
    folder = run.path / "submit"
    for stale in folder.glob("*.sh"):
        stale.unlink()
    queue, largest, answers = _slurms_word(cluster)
    queued = QueuedSteps.of(run, steps, cluster, queue)
    missing, ids = queued.missing(steps), dict(queued.active)
    if steps[-1].complete and tables_are_missing:
        missing.append(steps[-1])
    for batch in batches(missing, largest, cluster.packs):
        options: set[str] = set()
        if cluster.executor == "slurm":
            packed = cluster.with_resources(batch.stage, pack=batch.largest_pack)
            executor = StageExecutor(run, packed, batch.stage, batch.name, dependency(batch, ids))
            text, options = executor.script(batch.elements), executor.options
            ids |= {step.title: f"<{batch.name}>" for step in batch.steps}
        else:
            options_of_stage = ["--replace"] if replace and batch.stage == "aggregate" else []
            text = _local_script(batch, cluster, [*command_line, *options_of_stage])
        path = folder / f"{batch.name}.sh"
        with atomic_path(path) as temporary:
            temporary.write_text(text, encoding="utf-8")
        print(f"# ---- {path}\n{text.rstrip()}\n{_verdict(path, options) if answers else ''}")
    counts = Counter(step.stage for step in missing)
    parts = ", ".join(f"{number:,} {stage}" for stage, number in counts.items())
    print(f"# {len(missing):,} steps{f' ({parts})' * bool(missing)}, scripts in {folder}")


def _slurms_word(cluster: ClusterConfig) -> tuple[dict[str, QueueEntry], int, bool]:
    """Return this user's queue, the largest array, and whether Slurm answers.

    Without an answer the queue is empty.
    """
    if cluster.executor == "slurm" and shutil.which("squeue") is not None:
        try:
            return squeue(cluster.clusters), largest_array(cluster.clusters), True
        except UserError as error:
            print(f"# assuming an empty queue, because {error}")
    return {}, LARGEST_ARRAY, False


def _verdict(path: Path, options: set[str]) -> str:
    """Return the answer of `sbatch --test-only` as a comment."""
    # The dependencies have no job ids yet.
    command = ["sbatch", "--test-only", "--dependency=", str(path)]
    with submission_environment(options=options):
        asked = subprocess.run(command, capture_output=True, text=True, errors="replace")
    return f"# {' '.join(asked.stderr.split())}\n"


def _local_script(batch: SubmitBatch, cluster: ClusterConfig, command_line: Sequence[str]) -> str:
    """Return a script of equivalent commands; submitit's local executor writes none."""
    ranks = cluster.resources(batch.stage).ranks
    launcher = ["mpiexec", "-n", str(ranks)] if ranks > 1 else []
    exports = job_environment(cluster, batch.stage).items()
    lines = ["#!/bin/bash", *(f"export {key}={shlex.quote(value)}" for key, value in exports)]
    lines += setup_lines(cluster.setup)
    commands = []
    for step in batch.steps:
        element = []
        if step.row is not None and step.element is not None:
            element = ["--row", step.row, "--seed", str(step.element[1])]
        commands.append(shlex.join([*launcher, "sad-hpc", batch.stage, *command_line, *element]))
    lines += dict.fromkeys(commands)  # one collect command makes all datasets
    return "\n".join(lines) + "\n"
