"""Runs with synthetic result files, whose means are known."""

import json
from pathlib import Path

import numpy as np

from sad_hpc.evaluate import result_file
from sad_hpc.evaluate.result import Measure, ModeResult
from sad_hpc.experiment.load import parse_experiment
from sad_hpc.storage.run import Run

METHODS = ["SAD", "DPT", "DPT*"]
N_TASKS = 20


def make_run(folder: Path, methods=METHODS, seeds=(0, 1, 2), name="synthetic", **others) -> Run:
    mapping = {
        "name": name,
        "task": {"family": "darkroom"},
        "data": {"tasks": 24010, "trust_horizon": 7},
        "rows": list(methods),
        "seeds": list(seeds),
        "pretrain": {"epochs": 3},
        **others,
    }
    return Run(parse_experiment(mapping, "test"), folder / "runs")


def mode_result(
    values, references, metric="return", axis="episode", headline=1, seen=None, steps=None
):
    counted = None if seen is None else np.asarray(seen, dtype=np.int32)
    others = {name: np.asarray(array, np.float32) for name, array in references.items()}
    values = np.asarray(values, dtype=np.float32)
    columns = np.arange(1, values.shape[1] + 1) if steps is None else steps
    measure, steps = Measure(metric, axis, headline), np.asarray(columns, np.int32)
    return ModeResult(measure, steps, values, counted, others)


def write_result(
    run: Run, method, seed, offline, online, *, family="darkroom", references=None
) -> Path:
    """`offline` and `online` are of mode_result; `references` is {name: {mode: array}}."""
    folder = run.evaluation(method, seed).path
    folder.mkdir(parents=True, exist_ok=True)
    modes = {
        mode: mode_result(
            **given,
            references={name: m[mode] for name, m in (references or {}).items() if mode in m},
        )
        for mode, given in (("offline", offline), ("online", online))
    }
    attributes = {
        "signature": folder.name[-12:],
        "config": {},
        "method": method,
        "seed": seed,
        "task_family": family,
    }
    n_tasks = len(offline["values"])
    tasks = {"index": np.arange(n_tasks), "parameters": np.zeros((n_tasks, 2), np.int16)}
    result_file.write_result(folder / "result.h5", attributes, tasks, modes)
    return folder / "result.h5"


def write_metrics(run: Run, method, seed, losses, accuracies, **others) -> None:
    """`others` are further keys, with a value an epoch; None: it was not measured."""
    folder = run.checkpoint(method, seed).path
    folder.mkdir(parents=True, exist_ok=True)
    lines = [{"step": 1, "train_loss": 9.0}]
    for epoch, (loss, accuracy) in enumerate(zip(losses, accuracies, strict=True), start=1):
        lines.append({"epoch": epoch, "train_loss": loss, "holdout_loss": loss})
        lines[-1]["holdout_accuracy"] = accuracy
        now = {name: values[epoch - 1] for name, values in others.items()}
        lines[-1] |= {name: float(value) for name, value in now.items() if value is not None}
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (folder / "metrics.jsonl").write_text(text + '{"epoch": 99, "holdout_lo')


def level(method: str, seed: int) -> float:
    """The exact mean return of every element of `fill`."""
    return {"SAD": 24.0, "DPT": 2.0, "DPT*": 32.0}[method] + seed


def fill(run: Run, skip=(), n_tasks=N_TASKS) -> None:
    """Results like Darkroom's: a method's mean is `level`; half of the contexts show a reward.

    Offline, entries with a reward are 2 above the mean and the others 2 below.  Online, values
    rise over 40 episodes and stay at the mean for the last 10.
    """
    seen = np.arange(n_tasks)[:, None] % 2
    rise = np.minimum(np.arange(1, 41) / 31, 1)
    noise = np.where(np.arange(n_tasks)[:, None] % 4 < 2, 1.0, -1.0)
    for method, seed in run.experiment.elements:
        if (method, seed) in skip:
            continue
        mean = level(method, seed)
        online = mean * rise + noise
        write_result(
            run,
            method,
            seed,
            {"values": mean + np.where(seen, 2, -2), "seen": seen},
            # From the second episode on, tasks see as many rewards as their last episode had.
            {
                "values": online,
                "headline": 10,
                "seen": np.pad(online, ((0, 0), (1, 0)))[:, :-1] // 1,
            },
            references={
                "optimal": {"offline": np.full((n_tasks, 1), 44.5), "online": 0 * online + 44.5},
                "random": {"offline": np.full((n_tasks, 1), 1.0), "online": 0 * online + 1.0},
            },
        )
        end = 0.1 * METHODS.index(method)
        write_metrics(run, method, seed, [1.6, 1 + 0.1 * seed, 0.5 + end], [0.2, 0.5, 0.8 - end])
