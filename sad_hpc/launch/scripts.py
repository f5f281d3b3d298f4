"""`sad-hpc launch --dry-run`: write and print every submission script without starting a job."""

import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from sad_hpc.launch.cluster import ClusterConfig
from sad_hpc.launch.environment import job_environment, submission_environment
from sad_hpc.launch.executor import StageExecutor
from sad_hpc.launch.plan import SubmitBatch, dependency
from sad_hpc.launch.setup_lines import setup_lines
from sad_hpc.storage.files import atomic_path
from sad_hpc.storage.run import Run


def write_scripts(
    run: Run,
    planned: Sequence[SubmitBatch],
    active: Mapping[str, str],
    cluster: ClusterConfig,
    command_line: Sequence[str],
    replace: bool = False,
) -> None:
    """Write <run>/submit/<batch>.sh for each batch, and print it.

    Args:
        run: the run.
        planned: the batches that a launch would submit, in this order.
        active: job ids of earlier launches, by step title.
        cluster: cluster settings.
        command_line: CONFIG and overrides, for machines without Slurm.
        replace: whether aggregate may drop and replace results of other settings.

    Raises:
        UserError: the folder cannot be written.
    """
    folder = run.path / "submit"
    for stale in folder.glob("*.sh"):
        stale.unlink()
    ids = dict(active)
    for batch in planned:
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
        print(f"# ---- {path}\n{text.rstrip()}\n{_verdict(path, cluster, options)}")


def _verdict(path: Path, cluster: ClusterConfig, options: set[str]) -> str:
    """Return the answer of `sbatch --test-only` as a comment; empty without Slurm."""
    if cluster.executor != "slurm" or shutil.which("sbatch") is None:
        return ""
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
