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
"""At most so many simulators of a task are answered for by one pass over its context."""

FEW_SIMULATORS = 8
"""Where no task has as many, a context that is kept encoded answers sooner than one read anew."""


def rollout_policy(run: Run) -> RolloutPolicy:
    """What the only model of a run does; see `Run.round_before`.

    Raises:
        CheckpointError: it is not trained yet.
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
    """What a model does in simulators of `tasks` (m,), of which many may be of one task.

    A label's rollouts are a hundred simulators of one task.  So a pass answers for many of them,
    and reads their context once.

    Args:
        model: the transformer.
        context: one for each task.
        read: makes actions of its answers.
        tasks: rows of the context.
        batch_size: contexts in one forward pass.
    """
    most = int(np.bincount(tasks).max())
    if most < FEW_SIMULATORS:
        return acting(model, context.map(lambda part: part[tasks]), read, batch_size)
    # In powers of 2: the kernel keeps a memory for every size that it meets.
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
    """The task of each pass (P,), and the places (pass (m,), row (m,)) of simulators of `tasks`."""
    present, which, counts = np.unique(tasks, return_inverse=True, return_counts=True)
    passes = -(-counts // size)
    before = np.repeat(counts.cumsum() - counts, counts)
    rank = np.empty_like(which)  # among the simulators of its task
    rank[np.argsort(which, kind="stable")] = np.arange(len(which)) - before
    first = passes.cumsum() - passes
    return np.repeat(present, passes), (first[which] + rank // size, rank % size)
