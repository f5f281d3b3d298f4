"""A trained model as the policy of label rollouts, from the second round of `data.rounds` on."""

import numpy as np
import torch
from numpy.typing import NDArray

from sad_hpc.distill.block import Transitions
from sad_hpc.distill.rollout import Act, Acts, RolloutPolicy
from sad_hpc.evaluate.policy import load_model
from sad_hpc.evaluate.simulated import Read, acting, readings
from sad_hpc.model.context import Context, Queries
from sad_hpc.model.transformer import Transformer
from sad_hpc.storage.run import Run
from sad_hpc.tasks.base import make_family
from sad_hpc.tasks.simulated import SimulatedFamily, Simulators

SIMULATORS_A_PASS = 256
"""Largest number of a task's simulators that share one pass over its context."""

FEW_SIMULATORS = 8
"""Number of a task's simulators below which an encoded context is faster than a new pass."""


def rollout_policy(run: Run) -> RolloutPolicy:
    """Return the policy of a run's only model; see `Run.round_before`.

    Raises:
        CheckpointError: the model is not trained yet.
    """
    (element,) = run.experiment.elements
    model, family = load_model(run, *element), make_family(run.experiment.task)
    assert isinstance(family, SimulatedFamily)

    def policy(context: Transitions, generator: np.random.Generator) -> Acts:
        shown, (_, sample) = Context.of_parts(context.parts), readings(family, generator)
        batch_size = run.experiment.evaluate.batch_size
        return lambda tasks: following(model, shown, sample, tasks, batch_size)

    return policy


def following(
    model: Transformer,
    context: Context,
    read: Read,
    tasks: NDArray[np.int64],
    batch_size: int,
) -> Act:
    """Return a model's policy in simulators of `tasks` (m,), which can have many repetitions.

    The rollouts of a label use many simulators of one task.  One forward pass answers for several
    of them and reads their context once.

    Args:
        model: the transformer.
        context: one context for each task.
        read: function from logits to actions.
        tasks: rows of the context.
        batch_size: number of contexts in one forward pass.
    """
    most = int(np.bincount(tasks).max())
    if most < FEW_SIMULATORS:
        return acting(model, context.map(lambda part: part[tasks]), read, batch_size)
    # A power of 2, because the kernel keeps buffers for every size.
    size = min(SIMULATORS_A_PASS, 1 << (most - 1).bit_length())
    task_of_pass, places = _passes(tasks, size)
    device, components = model.head.weight.device, model.inputs.components
    shown = context.map(lambda part: part[task_of_pass].to(device))
    after = torch.full((len(shown.actions), size, 1), shown.actions.shape[1], device=device)
    shape = () if components is None else (components,)

    @torch.no_grad()
    def act(simulators: Simulators, step: int) -> NDArray[np.float32]:
        states = np.zeros((*after.shape[:2], simulators.observations.shape[1]), np.float32)
        states[places] = simulators.observations
        asked = torch.from_numpy(states).to(device).split(batch_size)
        parts = zip(shown.split(batch_size), asked, after.split(batch_size), strict=True)
        logits = torch.cat([model(part, Queries(*query)) for part, *query in parts])
        answers = logits.float().cpu().numpy()
        return read(answers.reshape(*states.shape[:2], *shape, answers.shape[-1])[places])

    return act


def _passes(
    tasks: NDArray[np.int64], size: int
) -> tuple[NDArray[np.int64], tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Return the task of each pass (P,), and the pass (m,) and row (m,) of each simulator."""
    present, which, counts = np.unique(tasks, return_inverse=True, return_counts=True)
    passes = -(-counts // size)
    before = np.repeat(counts.cumsum() - counts, counts)
    rank = np.empty_like(which)  # among the simulators of its task
    rank[np.argsort(which, kind="stable")] = np.arange(len(which)) - before
    first = passes.cumsum() - passes
    return np.repeat(present, passes), (first[which] + rank // size, rank % size)
