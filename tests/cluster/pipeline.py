"""A small pipeline on the dev cluster, with stages long enough to be interrupted."""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch

from sad_hpc import results
from sad_hpc.experiment.load import load_experiment
from sad_hpc.launch.graph import Step, graph
from sad_hpc.launch.records import load_records
from sad_hpc.storage.json_files import read_json
from sad_hpc.storage.run import Run
from tests.conftest import ROOT, TINY, clockless_metrics

SAD_HPC = Path(sys.executable).parent / "sad-hpc"
# Small blocks, batches and chunks: every stage lasts seconds, and is saved often.
OVERRIDES = (
    *("rows=[SAD]", "seeds=[0]", "data.tasks=4500", "data.block_tasks=10"),
    *("pretrain.batch_size=8", "pretrain.epochs=4", "pretrain.log_seconds=0.2"),
    *("evaluate.tasks=400", "evaluate.chunk_tasks=10", "evaluate.online_episodes=20"),
)
LONGER = ("data.tasks=18000", "pretrain.epochs=12", "pretrain.checkpoint_minutes=0.02")
"""A training takes a minute or more: Slurm misses a node within half of it."""
PATIENCE = 3600
"""Seconds, on a machine that may be busy with other things."""
LAUNCHERS: "list[subprocess.Popen[str]]" = []
"""All launchers of the present test, which ends them."""


def wait_until(happened: Callable[[], Any], what: str, pause: float = 0.02) -> Any:
    """The first true answer of `happened`, which is asked again after each pause (s)."""
    deadline = time.monotonic() + PATIENCE
    while not (answer := happened()):
        assert time.monotonic() < deadline, f"waited in vain until {what}"
        time.sleep(pause)
    return answer


class Pipeline:
    """One run in a folder of its own.

    Args:
        env: of a client of the cluster.
        folder: of the run.
        overrides: of the config, after OVERRIDES.
        enter: put before a command, has it run where the cluster is.
    """

    def __init__(
        self, env: dict[str, str], folder: Path, *overrides: str, enter: Sequence[str] = ()
    ) -> None:
        self.env, self.folder, self.overrides = env, folder, [*OVERRIDES, *overrides]
        self._enter = enter
        experiment = load_experiment(TINY, [o for o in self.overrides if not _of_cluster(o)])
        self.run = Run(experiment, folder / "runs")

    def launch(self, *options: str) -> "subprocess.Popen[str]":
        """A launcher in the background."""
        command = [*self._enter, str(SAD_HPC), "launch", str(TINY), "cluster.pretrain.ranks=2"]
        command += [*self.overrides, "--cluster", "slurm"]
        command += ["--runs", str(self.folder / "runs"), "--results", str(self.results), *options]
        launcher = subprocess.Popen(
            command,
            env=self.env,
            cwd=ROOT,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        LAUNCHERS.append(launcher)
        return launcher

    def finish(self, process: "subprocess.Popen[str] | None" = None, code: int = 0) -> str:
        """Wait for a launcher, by default a new one with --wait, and return its output."""
        process = process or self.launch("--wait")
        try:
            log, _ = process.communicate(timeout=PATIENCE)
        finally:
            process.kill()  # one that is late would wait for a Slurm that is taken down
        assert process.returncode == code, log
        return log

    @property
    def results(self) -> Path:
        """Folder of tables."""
        return self.folder / "results"

    def step(self, stage: str) -> Step:
        """The only step of a stage."""
        return next(step for step in graph(self.run) if step.stage == stage)

    def job(self, stage: str) -> str:
        """The id of a stage's last job."""
        return load_records(self.run)[self.step(stage).title].id

    def shown(self, stage: str) -> str:
        """Return `scontrol show job` of a stage's job."""
        return self._slurm("scontrol", "show", "job", self.job(stage))

    def node_state(self, node: str) -> str:
        """Such as `idle`, or `down*`; empty if Slurm does not answer, as on a cut network."""
        shown = "--noheader", "--partition=debug", f"--nodes={node}", "--format=%T"
        try:
            return self._slurm("sinfo", *shown)
        except subprocess.CalledProcessError:
            return ""

    def _slurm(self, *command: str) -> str:
        return subprocess.check_output([*self._enter, *command], env=self.env, text=True).strip()

    def wait_until_half_done(self, stage: str) -> None:
        """Until a stage has saved some of its work, and not all."""
        step = self.step(stage)
        if stage == "aggregate":  # seconds, and nothing is saved on the way
            wait_until(lambda: self.ranks(stage), f"{step.title} runs")
            return
        wait_until(lambda: _is_half_done(step), f"{step.title} is half done")
        assert not step.complete, f"{step.title} cannot be hit"

    def ranks(self, stage: str) -> list[psutil.Process]:
        """The processes of a stage's running job, by rank."""
        if self.step(stage).title not in load_records(self.run):
            return []
        found = ranks_of_jobs(self.env["SLURM_CONF"])
        return [process for job, process in found if job == self.job(stage)]

    def same_as(self, other: "Pipeline") -> None:
        """Asserts equal datasets, weights and tables."""
        digests, weights = [], []
        for each in (self, other):
            marker = read_json(each.step("collect").folder.path / "done.json")
            digests.append(marker["digests"])
            path = each.step("pretrain").folder.path / "weights.pt"
            weights.append(torch.load(path, weights_only=True)["state"])
        assert digests[0] == digests[1]
        for name, weight in weights[0].items():
            assert torch.allclose(weight, weights[1][name], rtol=0, atol=1e-6), name
        mine, theirs = (each.results / "tiny/summary.csv" for each in (self, other))
        assert mine.read_bytes() == theirs.read_bytes()
        tables = [results.load(each.results / "tiny") for each in (self, other)]
        assert tables[0].equals(tables[1])
        metrics = [clockless_metrics(e.step("pretrain").folder.path) for e in (self, other)]
        for line, expected in zip(*metrics, strict=True):
            # The ranks' sums of losses are rounded once more when they are saved.
            assert line == pytest.approx(expected, rel=1e-9), line


def ranks_of_jobs(slurm_conf: str) -> list[tuple[str, psutil.Process]]:
    """Every process that works on a step of this cluster's jobs: (job id, process), by rank."""
    found = []
    for process, name, variables in processes_of_jobs(slurm_conf):
        # The job's script and srun have a step's variables, too.
        if "SLURM_STEP_ID" in variables and name.startswith("python"):
            job = variables["SLURM_JOB_ID"]
            if "SLURM_ARRAY_JOB_ID" in variables:
                job = f"{variables['SLURM_ARRAY_JOB_ID']}_{variables['SLURM_ARRAY_TASK_ID']}"
            found.append((int(variables["SLURM_PROCID"]), job, process))
    return [(job, process) for _, job, process in sorted(found, key=lambda each: each[:2])]


def processes_of_jobs(slurm_conf: str) -> Iterator[tuple[psutil.Process, str, dict[str, str]]]:
    """Every process of this cluster's jobs, its name and its environment."""
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            name, variables = process.name(), process.environ()
            if variables.get("SLURM_CONF") == slurm_conf and "SLURMD_NODENAME" in variables:
                yield process, name, variables


def _of_cluster(override: str) -> bool:
    return override.startswith("cluster.")


def _is_half_done(step: Step) -> bool:
    if step.stage == "collect":
        return len(list(step.folder.path.glob("train/shard-*.h5"))) > 50
    if step.stage == "evaluate":
        return len(list(step.folder.path.glob("chunks/*.h5"))) > 5
    progress = step.folder.progress
    return progress is not None and progress["done"] > progress["total"] / 3
