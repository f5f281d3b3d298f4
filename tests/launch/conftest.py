"""Fixtures: a run without data, stubs of the stages, and a Slurm made of shell scripts."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from sad_hpc.experiment.load import parse_experiment
from sad_hpc.launch.graph import Step, graph
from sad_hpc.storage.run import Run

STUBS = Path(__file__).parent / "stubs"

EXPERIMENT = {
    "name": "made-up",
    "task": {"family": "darkroom", "size": 3, "horizon": 9, "train_goals": 6},
    "data": {"tasks": 900, "trust_horizon": 3},
    "rows": ["SAD", "DPT*"],
    "seeds": [0, 1],
    "pretrain": {"epochs": 1, "holdout_tasks": 64},
    "evaluate": {"tasks": 4, "online_episodes": 2, "headline_episodes": 1},
}


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Two methods, two seeds, nothing complete."""
    return Run(parse_experiment(EXPERIMENT, "test"), tmp_path / "runs")


@pytest.fixture
def stubs(monkeypatch: pytest.MonkeyPatch) -> None:
    """In every process that starts from now on the stages are those of stubs/sitecustomize.py."""
    # The launcher itself prints the real table at the end, which stubs do not make.
    monkeypatch.setattr("sad_hpc.launch.pipeline._print_results", lambda folder: None)
    monkeypatch.setenv("PYTHONPATH", str(STUBS), prepend=os.pathsep)


class FakeSlurm:
    """`sbatch` counts ids from 100 and keeps the scripts; `squeue` prints what it was told, less
    what `scancel` ended."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "queue").touch()
        self._program(
            "sbatch",
            f'n=$(ls {folder}/*.sh 2>/dev/null | wc -l); cp "$1" {folder}/$((100 + n)).sh\n'
            'echo "Submitted batch job $((100 + n))"',
        )
        self._program("squeue", f"cat {folder}/queue")
        self._program(
            "scancel",
            f'echo "$@" >> {folder}/cancelled\n'
            f'for job in "$@"; do sed -i "/^$job|/d" {folder}/queue; done',
        )
        self._program("sacct", "echo no accounting >&2; exit 1")
        self._program("srun", "exit 1")

    def _program(self, name: str, body: str) -> None:
        path = self.folder / name
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)

    def queue(self, comment: str = "(null)", **states: str) -> None:
        """Set the output of squeue: states by job id, written `j12_3="RUNNING"`."""
        lines = [f"{job[1:]}|{state}|N/A|N/A|{comment}|None" for job, state in states.items()]
        (self.folder / "queue").write_text("".join(f"{line}\n" for line in lines))

    def refuse(self) -> None:
        """From now on sbatch accepts nothing."""
        self._program("sbatch", "echo 'invalid partition specified: nope' >&2; exit 1")

    def scripts(self) -> dict[str, str]:
        """The submitted scripts by job id."""
        return {path.stem: path.read_text() for path in sorted(self.folder.glob("*.sh"))}

    @property
    def cancelled(self) -> list[str]:
        """Ids given to scancel."""
        path = self.folder / "cancelled"
        return path.read_text().split() if path.exists() else []


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeSlurm]:
    """Programs that answer as Slurm's do."""
    folder = tmp_path / "slurm"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)
    yield FakeSlurm(folder)


def steps_of(run: Run, stage: str) -> list[Step]:
    """The steps of one stage."""
    return [step for step in graph(run) if step.stage == stage]


def complete(*steps: Step) -> None:
    """Marks steps as complete."""
    for step in steps:
        step.folder.prepare({})
        step.folder.complete()
