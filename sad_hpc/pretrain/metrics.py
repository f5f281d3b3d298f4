"""Metrics of a training: JSON lines, trackers and log lines."""

import json
import math
import os
from collections.abc import Sequence
from pathlib import Path

from sad_hpc.pretrain.trackers import Trackers
from sad_hpc.storage.files import atomic_path, write_error
from sad_hpc.storage.json_files import read_json_lines, typed
from sad_hpc.storage.stage_folder import METRICS


class MetricsLog:
    """Writer of `metrics.jsonl`, one line an epoch; a resumed run drops later lines.

    Args:
        folder: folder of the training.
        step: step at which the training starts or resumes.
        trackers: names of trackers.
    """

    def __init__(self, folder: Path, step: int, trackers: Sequence[str]) -> None:
        self._path = folder / METRICS
        self.last: dict[str, float] = {}
        self._trackers = Trackers(trackers, folder, step)
        found = (typed(dict[str, int | float], line) for line in read_json_lines(self._path))
        kept = [line for line in found if line and line.get("step", math.inf) <= step]
        with atomic_path(self._path) as temporary:
            temporary.write_text("".join(f"{json.dumps(line)}\n" for line in kept))
        if kept:
            self.last = kept[-1]

    def write(self, metrics: dict[str, float]) -> None:
        """Add a line, and send the metrics to each tracker.

        Tokens are the transitions and queries that pass through the model in training.
        """
        self.last = metrics
        try:
            with self._path.open("a", encoding="utf-8") as handle:
                handle.write(json.dumps(metrics) + "\n")
                handle.flush()
                os.fsync(handle.fileno())  # before the next checkpoint, which is synced
        except OSError as error:
            raise write_error(self._path, error) from error
        curves = {name: value for name, value in metrics.items() if name not in ("epoch", "step")}
        self._trackers.write(curves, int(metrics["step"]))
        above = metrics.get("excess_loss")
        excess = "" if above is None else f" ({above:.4f} above Bayes-optimal)"
        validation = (
            f"validation loss {metrics['validation_loss']:.4f}, validation return "
            f"{metrics['validation_return']:.3f}, "
            if "validation_return" in metrics
            else ""
        )
        print(
            f"epoch {metrics['epoch']}: train loss {metrics['train_loss']:.4f}, held-out loss "
            f"{metrics['holdout_loss']:.4f}{excess}, label accuracy "
            f"{metrics['holdout_accuracy']:.3f}, {validation}"
            f"{metrics['tokens_per_second']:,.0f} tokens/s",
            flush=True,
        )

    def close(self) -> None:
        """Close the trackers."""
        self._trackers.close()
