"""The metrics of a training run: JSON lines, TensorBoard, and a line in the log."""

import json
from pathlib import Path

from torch.utils.tensorboard import SummaryWriter

from sad_hpc.storage.files import atomic_path, write_error


class MetricsLog:
    """`metrics.jsonl` and TensorBoard, one line an epoch; a resumed run drops what it redoes."""

    def __init__(self, folder: Path, step: int) -> None:
        self._path = folder / "metrics.jsonl"
        self.last: dict[str, float] = {}
        self._tensorboard = SummaryWriter(str(folder / "tensorboard"), purge_step=step + 1)
        lines = self._path.read_text().splitlines() if self._path.exists() else []
        kept = [line for line in lines if _step_of(line) <= step]
        with atomic_path(self._path) as temporary:
            temporary.write_text("".join(f"{line}\n" for line in kept))
        if kept:
            self.last = json.loads(kept[-1])

    def write(self, metrics: dict[str, float]) -> None:
        """Adds a line, and a point to each TensorBoard curve.

        Tokens are the transitions and queries that pass through the model in training.
        """
        self.last = metrics
        try:
            with self._path.open("a", encoding="utf-8") as handle:
                handle.write(json.dumps(metrics) + "\n")
        except OSError as error:
            raise write_error(self._path, error) from error
        for name, value in metrics.items():
            if name not in ("epoch", "step"):
                self._tensorboard.add_scalar(name, value, int(metrics["step"]))
        self._tensorboard.flush()
        above = metrics.get("excess_loss")
        excess = "" if above is None else f" ({above:.4f} above the ideal)"
        print(
            f"epoch {metrics['epoch']}: train loss {metrics['train_loss']:.4f}, held-out loss "
            f"{metrics['holdout_loss']:.4f}{excess}, label accuracy "
            f"{metrics['holdout_accuracy']:.3f}, "
            f"{metrics['tokens_per_second']:,.0f} tokens/s",
            flush=True,
        )


def _step_of(line: str) -> float:
    try:
        return json.loads(line)["step"]
    except (ValueError, KeyError):
        return float("inf")
