"""The best weights of a training so far, which `pretrain.keep: best` makes the model."""

from dataclasses import dataclass

from pydantic import InstanceOf
from torch import Tensor

from sad_hpc.experiment.sections import PretrainConfig


@dataclass(frozen=True)
class Best:
    """The weights of the best epoch so far."""

    metrics: dict[str, float]
    """Metrics of their epoch."""
    weights: InstanceOf[Tensor]
    """(P,): the flat parameter, on the CPU."""


class BestWeights:
    """Keeps the weights with the best measure if the config wants them.

    The measure is the return on validation tasks, or without such tasks the held-out loss.

    Args:
        config: settings of the training.
    """

    def __init__(self, config: PretrainConfig) -> None:
        self._wanted = config.keep == "best"
        self._plays = config.validation_tasks > 0
        self.found: Best | None = None
        """None before the first measurement, or if the last weights are kept."""

    def compare(self, metrics: dict[str, float], flat: Tensor) -> None:
        """Keep weights if they are the best so far; the first of equally good ones stay.

        Args:
            metrics: metrics of an epoch.
            flat: (P,), the weights after it.
        """
        if not self._wanted or (self._plays and "validation_return" not in metrics):
            return
        if self.found is None or self._score(metrics) > self._score(self.found.metrics):
            self.found = Best(metrics, flat.detach().cpu().clone())

    def _score(self, metrics: dict[str, float]) -> float:
        return metrics["validation_return"] if self._plays else -metrics["holdout_loss"]
