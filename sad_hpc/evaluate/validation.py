"""The offline return on validation tasks of a model in training."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from sad_hpc.evaluate.offline import offline_returns
from sad_hpc.evaluate.policy import Trained, make_ready, state_logits
from sad_hpc.experiment.methods import METHODS
from sad_hpc.model.architecture import make_model
from sad_hpc.model.context import Context, Inputs
from sad_hpc.storage.run import Run
from sad_hpc.tasks.base import make_family
from sad_hpc.tasks.tabular import TabularFamily
from sad_hpc.user_code import UserCode


def offline_score(
    run: Run, method: str, seed: int, context: Context, parameters: NDArray[Any]
) -> Callable[[Mapping[str, Tensor]], float]:
    """Return a function from weights to the mean return of one greedy episode in each task.

    The random numbers of the tasks are the same at every call.

    Args:
        run: run of the training.
        method: method of the model.
        seed: seed of the training.
        context: n contexts, one for each task.
        parameters: (n, p) of the tasks.
    """
    experiment = run.experiment
    family = make_family(experiment.task)
    assert isinstance(family, TabularFamily)  # has_validation
    with UserCode(lambda: "the validation tasks", watched=False):
        mdps = family.mdps(parameters)
    length = experiment.context_length(method)
    model = make_model(experiment.model, Inputs.of_family(family, length))
    trained = Trained(model, METHODS[method].longest_context(length))
    shown, size = trained.shown(context), experiment.evaluate.batch_size

    def score(weights: Mapping[str, Tensor]) -> float:
        model.load_state_dict(dict(weights))
        make_ready(model, kernel=experiment.pretrain.kernel == "auto")
        logits = state_logits(model, family, shown, size)
        returns = offline_returns(family, mdps, logits, np.random.default_rng(seed))
        return float(returns.mean())

    return score
