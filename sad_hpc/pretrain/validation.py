"""Loss and offline return on validation tasks during a training."""

from collections.abc import Callable, Mapping
from typing import Any

from numpy.typing import NDArray
from torch import Tensor

from sad_hpc.experiment.sections import PretrainConfig
from sad_hpc.model.context import Context
from sad_hpc.pretrain.engine import on_first_rank
from sad_hpc.pretrain.holdout import Holdout
from sad_hpc.storage.run import Run

TASKS = 200
"""Largest number of contexts under which the model plays."""

TIMES = 20
"""Largest number of validations in a training, which are spread evenly over its epochs."""

Score = Callable[[Mapping[str, Tensor]], float]
"""A function from a model's weights by name to its mean offline return on validation tasks."""

MakeScore = Callable[[Run, str, int, Context, NDArray[Any]], Score]
"""A function that makes a `Score`; see `evaluate.validation.offline_score`.  The room `evaluate`
has it, and imports this one."""


class Validation:
    """The validation of a training.

    Args:
        config: settings of the training.
        holdout: this rank's share of the contexts whose loss is measured.
        score: offline return of weights; only the first rank calls it.
    """

    def __init__(self, config: PretrainConfig, holdout: Holdout, score: Score) -> None:
        self._epochs, self._holdout, self._score = config.epochs, holdout, score

    def is_due(self, epoch: int) -> bool:
        """Return whether the model is validated after an epoch, which counts from 0.

        It is after the last one.
        """
        times = min(TIMES, self._epochs)
        return (epoch + 1) * times // self._epochs > epoch * times // self._epochs

    def measure(self, engine: Any) -> dict[str, float]:
        """Return `validation_loss` (nats) and `validation_return`; every rank must call it."""
        weights = engine.module.named_weights()
        return {
            "validation_loss": self._holdout.validation_loss(engine),
            "validation_return": on_first_rank(lambda: self._score(weights)),
        }
