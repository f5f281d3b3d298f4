"""A trained model as the policy of label rollouts, from the second round of `data.rounds` on."""

import numpy as np
import torch

from sad_hpc.distill.block import Transitions
from sad_hpc.distill.play import Act, RolloutPolicy
from sad_hpc.evaluate.policy import load_model
from sad_hpc.evaluate.simulated import acting, readings
from sad_hpc.model.context import Context
from sad_hpc.storage.run import Run
from sad_hpc.tasks.base import make_family
from sad_hpc.tasks.simulated import SimulatedFamily


def rollout_policy(run: Run) -> RolloutPolicy:
    """What the only model of a run does; see `Run.round_before`.

    Raises:
        CheckpointError: it is not trained yet.
    """
    (element,) = run.experiment.elements
    model, family = load_model(run, *element), make_family(run.experiment.task)
    assert isinstance(family, SimulatedFamily)

    def policy(context: Transitions, generator: np.random.Generator) -> Act:
        shown = Context(**{name: torch.from_numpy(part) for name, part in context.parts.items()})
        _, sample = readings(family, generator)
        return acting(model, shown, sample, run.experiment.evaluate.batch_size)

    return policy
