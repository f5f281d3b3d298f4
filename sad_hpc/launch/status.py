"""`sad-hpc status RUN`: each step's state, progress, job and log."""

import os
from collections import Counter
from pathlib import Path

from sad_hpc.errors import SadError
from sad_hpc.experiment.load import parse_experiment
from sad_hpc.launch.graph import graph
from sad_hpc.launch.records import load_records
from sad_hpc.launch.state import BLOCKED_ADVICE, ENDED_BADLY, StepState, step_states
from sad_hpc.launch.wait import print_failures
from sad_hpc.launch.watch import ask
from sad_hpc.storage.files import read_json
from sad_hpc.storage.run import Run


def show_status(run_path: Path) -> int:
    """Prints a line for each step; the exit code is 1 if any has failed.

    Raises:
        SadError: the folder is no run's, or it was renamed.
    """
    run = load_run(run_path)
    steps, records = graph(run), load_records(run)
    answer = ask(run, steps, records)
    states = step_states(steps, records, None if answer.error else answer.jobs)
    print("\n".join(state_lines(states)))
    if answer.error:
        print(f"without Slurm's word: {answer.error}")
    if any(state.kind == "blocked" for state in states):
        print(BLOCKED_ADVICE)
    failed = [state for state in states if state.kind in ENDED_BADLY]
    print_failures(states)
    if failed:
        print("launch again to run what is missing; complete stages are kept")
    return 1 if failed else 0


def load_run(run_path: Path) -> Run:
    """The run of a folder, by the config that was stored in it.

    Raises:
        SadError: the folder is no run's, or it was renamed.
    """
    stored = read_json(run_path / "config.json")
    if not isinstance(stored, dict):
        raise SadError(
            f"{run_path} is no run's folder (it has no readable config.json); give one such as "
            "runs/darkroom"
        )
    run = Run(parse_experiment(stored, str(run_path / "config.json")), run_path.absolute().parent)
    if run.path.name != run_path.absolute().name:
        raise SadError(
            f"{run_path} holds the run {run.path.name!r}: rename the folder to {run.path.name}"
        )
    return run


def state_lines(states: list[StepState]) -> list[str]:
    """A table of steps and a last line that counts them."""
    rows = [
        (
            state.step.name,
            state.text,
            f"job {state.job.id}" if state.job else "",
            os.path.relpath(state.job.log) if state.job else "",
        )
        for state in states
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    lines = [
        "  ".join([*(cell.ljust(w) for cell, w in zip(row, widths, strict=False)), row[3]]).rstrip()
        for row in rows
    ]
    counts = Counter(state.kind for state in states)
    summary = ", ".join(f"{number} {kind}" for kind, number in counts.items())
    return [*lines, f"{len(states)} steps: {summary}"]
