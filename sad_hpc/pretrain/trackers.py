"""Trackers of a training's curves: TensorBoard, Weights & Biases, MLflow.

A tracker never stops a training.  A tracker that is missing, fails, or has a server without a quick
answer is removed with a line in the log.  Data leave the machine only if the user's environment has
`WANDB_MODE=online` or `MLFLOW_TRACKING_URI`.
"""

import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from sad_hpc.storage.json_files import read_json

INSTALL = {"wandb": "pip install 'sad_hpc[wandb]'", "mlflow": "pip install 'sad_hpc[mlflow]'"}

PATIENCE = {
    "wandb": {"WANDB_INIT_TIMEOUT": "20", "WANDB_FINISH_TIMEOUT": "30"},
    "mlflow": {"MLFLOW_HTTP_REQUEST_TIMEOUT": "10", "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1"},
}
"""Environment variables with timeouts (seconds) and retries of the libraries, unless the user sets
them.  The libraries' own defaults block a training for minutes or without a limit."""


class Tracker(Protocol):
    """A tracker of one training's curves."""

    def write(self, metrics: Mapping[str, float], step: int) -> None:
        """Add a point to each curve."""

    def close(self) -> None:
        """Close the run."""


class TensorBoard:
    """Tracker with event files in `tensorboard/` of the training's folder."""

    def __init__(self, folder: Path, step: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(str(folder / "tensorboard"), purge_step=step + 1)

    def write(self, metrics: Mapping[str, float], step: int) -> None:
        """Implement `Tracker.write`."""
        for name, value in metrics.items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()

    def close(self) -> None:
        """Implement `Tracker.close`."""
        self._writer.close()


class WeightsAndBiases:
    """Tracker with a run in the experiment's project, offline in `wandb/` unless WANDB_MODE is set.

    `wandb sync FOLDER` uploads it.  A resumed training continues the same run.
    """

    def __init__(self, folder: Path, step: int) -> None:
        _set_defaults(PATIENCE["wandb"] | {"WANDB_MODE": "offline"})
        import wandb

        self._run = wandb.init(
            project=_experiment(folder),
            name=folder.name,
            id=folder.name,
            dir=str(folder),
            config=read_json(folder / "config.json"),
            resume="allow",
            settings=wandb.Settings(silent=True, console="off", disable_git=True),
        )

    def write(self, metrics: Mapping[str, float], step: int) -> None:
        """Implement `Tracker.write`."""
        self._run.log(dict(metrics), step=step)

    def close(self) -> None:
        """Implement `Tracker.close`."""
        self._run.finish()


class MLflow:
    """Tracker with a run of the experiment, in `mlflow/` of the folder or at MLFLOW_TRACKING_URI.

    A resumed training continues the same run, which is found by its name.
    """

    def __init__(self, folder: Path, step: int) -> None:
        _set_defaults(PATIENCE["mlflow"])
        from mlflow import MlflowClient

        address = os.environ.get("MLFLOW_TRACKING_URI")
        if address is None:
            # A file store for each training, because parallel ones would wait for one database.
            os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
            address = (folder / "mlflow").absolute().as_uri()
        self._client = MlflowClient(tracking_uri=address)
        self._run = self._begun(folder)

    def _begun(self, folder: Path) -> str:
        """Return the id of the training's run, and create it if necessary."""
        import pandas as pd

        name = _experiment(folder)
        known = self._client.get_experiment_by_name(name)
        experiment = known.experiment_id if known else self._client.create_experiment(name)
        query = f"attributes.run_name = '{folder.name}'"
        for run in self._client.search_runs([experiment], query):
            return str(run.info.run_id)
        identity = str(self._client.create_run(experiment, run_name=folder.name).info.run_id)
        (settings,) = pd.json_normalize(read_json(folder / "config.json")).to_dict("records")
        for key, value in settings.items():
            self._client.log_param(identity, str(key), value)
        return identity

    def write(self, metrics: Mapping[str, float], step: int) -> None:
        """Implement `Tracker.write`."""
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        points = [Metric(name, value, now, step) for name, value in metrics.items()]
        self._client.log_batch(self._run, metrics=points)  # one request, so at most one wait

    def close(self) -> None:
        """Implement `Tracker.close`."""
        self._client.set_terminated(self._run)


KINDS: dict[str, Callable[[Path, int], Tracker]] = {
    "tensorboard": TensorBoard,
    "wandb": WeightsAndBiases,
    "mlflow": MLflow,
}


class Trackers:
    """The working trackers of a config.

    Args:
        names: names of trackers in KINDS.
        folder: folder of the training, `runs/<experiment>/checkpoints/<training>`.
        step: current step of the training; curves of an earlier start end there.
    """

    def __init__(self, names: Sequence[str], folder: Path, step: int) -> None:
        self._trackers: dict[str, Tracker] = {}
        for name in names:
            try:
                self._trackers[name] = KINDS[name](folder, step)
            except Exception as error:  # libraries raise errors of any kind
                _say_left_out(name, error)

    def write(self, metrics: Mapping[str, float], step: int) -> None:
        """Add a point to each curve."""
        for name, tracker in list(self._trackers.items()):
            try:
                tracker.write(metrics, step)
            except Exception as error:
                del self._trackers[name]
                _say_left_out(name, error)

    def close(self) -> None:
        """Close the run."""
        for tracker in self._trackers.values():
            with suppress(Exception):
                tracker.close()


def _experiment(folder: Path) -> str:
    return folder.absolute().parents[1].name


def _set_defaults(variables: Mapping[str, str]) -> None:
    """Set environment variables that the user has not set."""
    for name, value in variables.items():
        os.environ.setdefault(name, value)


def _say_left_out(name: str, error: Exception) -> None:
    why = " ".join(str(error).split()) or type(error).__name__
    if isinstance(error, ModuleNotFoundError) and name in INSTALL:
        why += f"; {INSTALL[name]}"
    print(f"{name} is disabled from here on: {why}", file=sys.stderr, flush=True)
