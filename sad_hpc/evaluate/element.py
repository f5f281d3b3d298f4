"""The evaluation of one (method, seed): one element of the array job, one HDF5 file."""

import json
from dataclasses import dataclass
from typing import Any

import h5py
import numpy as np
import torch
from numpy.typing import NDArray

from sad_hpc.dataset.reader import Arrays, load_complete, read_columns
from sad_hpc.evaluate.baselines import optimal_returns, policy_returns
from sad_hpc.evaluate.offline import offline_returns
from sad_hpc.evaluate.online import online_returns
from sad_hpc.evaluate.policy import load_model
from sad_hpc.examples import CONTEXT_PARTS
from sad_hpc.hdf5 import write_file
from sad_hpc.model import Context
from sad_hpc.progress import Progress
from sad_hpc.run import Run
from sad_hpc.tasks import TabularFamily, TabularMDPs, make_family

FORMAT_VERSION = 1
RESULT = "result.h5"


@dataclass(frozen=True)
class ModeResult:
    """What one mode (offline or online) yields for n tasks; K columns, such as episodes."""

    metric: str
    higher_is_better: bool
    axis: str
    """What the columns are."""
    headline: int
    """The number in the tables is the mean of the last so many columns."""
    values: NDArray[np.float32]
    """(n, K)"""
    context_rewards: NDArray[np.int32]
    """(n, K): rewarded transitions in the context."""
    references: dict[str, NDArray[np.float32]]
    """Reference policy -> (n, K)."""


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
    folder.prepare(experiment.evaluate_config(method, seed))
    family = make_family(experiment.task)
    columns = _test_columns(run, settings.tasks)
    mdps = family.mdps(columns["tasks/parameters"])
    contexts = Context(**{p: torch.from_numpy(columns[f"context/{p}"]) for p in CONTEXT_PARTS})
    references = _references(family, mdps)
    generator = np.random.default_rng([settings.seed, seed])
    with Progress(folder, settings.online_episodes + 1, "episodes") as progress:
        offline = offline_returns(model, family, mdps, contexts, settings.batch_size)
        progress.update(1)
        online, online_rewards = online_returns(
            model,
            family,
            mdps,
            settings.online_episodes,
            generator,
            settings.batch_size,
            report=lambda episodes: progress.update(1 + episodes),
        )
    rewarded = (columns["context/rewards"] > 0).sum(axis=1, keepdims=True).astype(np.int32)
    results = {
        "offline": ModeResult("return", True, "episode", 1, offline, rewarded, references),
        "online": ModeResult(
            "return",
            True,
            "episode",
            settings.headline_episodes,
            online,
            online_rewards,
            {name: values.repeat(online.shape[1], axis=1) for name, values in references.items()},
        ),
    }
    _write(run, method, seed, family, columns, results)
    folder.complete(
        offline_return=float(offline.mean()),
        online_return=float(online[:, -settings.headline_episodes :].mean()),
    )


def _test_columns(run: Run, n_tasks: int) -> Arrays:
    """Contexts (Algorithm 1) and parameters of the first test tasks."""
    experiment = run.experiment
    folder = run.data().path / "test"
    manifest = load_complete(folder, experiment.data_signature(), experiment.data_config())
    names = [f"context/{part}" for part in CONTEXT_PARTS]
    return read_columns(folder, manifest, [*names, "tasks/index", "tasks/parameters"], n_tasks)


def _references(family: TabularFamily, mdps: TabularMDPs) -> dict[str, NDArray[np.float32]]:
    horizon, start = family.config.horizon, family.start_state
    uniform = np.full(family.n_actions, 1 / family.n_actions)
    return {
        "optimal": optimal_returns(mdps, horizon, start)[:, None],
        "random": policy_returns(mdps, horizon, start, uniform)[:, None],
    }


def _write(
    run: Run,
    method: str,
    seed: int,
    family: TabularFamily,
    columns: Arrays,
    results: dict[str, ModeResult],
) -> None:
    experiment = run.experiment
    attributes: dict[str, Any] = {
        "format_version": FORMAT_VERSION,
        "signature": experiment.evaluate_signature(method, seed),
        "config": json.dumps(experiment.model_dump(mode="json"), sort_keys=True),
        "method": method,
        "seed": seed,
        "task_family": family.name,
    }

    def fill(file: h5py.File) -> None:
        file.attrs.update(attributes)
        for name in ("tasks/index", "tasks/parameters"):
            file[name] = columns[name]
        for mode, result in results.items():
            group = file.create_group(mode)
            group.attrs.update(
                metric=result.metric,
                higher_is_better=result.higher_is_better,
                axis=result.axis,
                headline=result.headline,
            )
            group["values"] = result.values
            group["context_rewards"] = result.context_rewards
            for reference, values in result.references.items():
                file[f"references/{reference}/{mode}"] = values

    write_file(run.evaluation(method, seed).path / RESULT, fill)
