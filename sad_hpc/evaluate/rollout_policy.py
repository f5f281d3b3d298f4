"""A trained model as the incumbent of the next round."""

from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sad_hpc.distill.action_table import ActionTable, action_table
from sad_hpc.distill.block import Transitions
from sad_hpc.distill.incumbent import Incumbent
from sad_hpc.distill.rollout import Following, Followings
from sad_hpc.evaluate.encoded import TaskContexts, part_size, tokens_of
from sad_hpc.evaluate.own_play import simulator_play, table_play
from sad_hpc.evaluate.policy import load_model, state_logits
from sad_hpc.evaluate.simulated import Decide, deciding, readings
from sad_hpc.kernels.interruption import STOP_FLAG, Interrupted
from sad_hpc.model.context import Context
from sad_hpc.model.sequence_model import SequenceModel
from sad_hpc.storage.run import Run
from sad_hpc.tasks.base import make_family
from sad_hpc.tasks.simulated import SimulatedFamily
from sad_hpc.tasks.tabular import TabularFamily

SIMULATORS_A_PASS = 256
"""Largest number of a task's simulators that ask together."""


def rollout_policy(run: Run) -> Incumbent:
    """Return the incumbent of a run's dataset: the model that `Run.round_before` trains.

    Raises:
        CheckpointError: the model is not trained yet.
    """
    before = run.round_before
    assert before is not None, "label rollouts of the first round follow the behavior policy"
    (element,) = before.experiment.elements
    model, family = load_model(before, *element), make_family(run.experiment.task)
    temperature = run.experiment.data.round_temperature
    batch_size = run.experiment.evaluate.batch_size
    if isinstance(family, TabularFamily):
        return tabular_incumbent(model, family, temperature, batch_size)
    assert isinstance(family, SimulatedFamily), f"{family.name} has no later rounds"
    return simulated_incumbent(model, family, temperature, batch_size)


def tabular_incumbent(
    model: SequenceModel, family: TabularFamily, temperature: float, batch_size: int
) -> Incumbent:
    """Return a model as the incumbent of tabular tasks.

    Args:
        model: the trained model.
        family: family of the tasks.
        temperature: see `data.round_temperature`.
        batch_size: number of contexts in one forward pass.
    """

    def follow(context: Transitions) -> ActionTable:
        logits = []
        for part in Context.of_parts(context.parts).split(batch_size):
            if STOP_FLAG[0]:
                raise Interrupted
            logits.append(state_logits(model, family, part, batch_size))
        return action_table(np.concatenate(logits), temperature)

    return Incumbent(follow, partial(table_play, model, family, batch_size=batch_size))


def simulated_incumbent(
    model: SequenceModel, family: SimulatedFamily, temperature: float, batch_size: int
) -> Incumbent:
    """Return a model as the incumbent of simulated tasks; see `tabular_incumbent`."""

    def follow(context: Transitions, generator: np.random.Generator) -> Followings:
        shown = TaskContexts(model, _tokens(model, context, batch_size), batch_size)
        likeliest, sample = readings(family, generator)

        def read(logits: NDArray[np.float32]) -> NDArray[Any]:
            return sample(logits / temperature) if temperature else likeliest(logits)

        def followings(tasks: NDArray[np.int64]) -> Following:
            decide = deciding_in(model, shown, tasks)
            return Following(
                lambda simulators, step: decide(simulators.observations, read),
                lambda observations: decide(observations, likeliest),
                lambda observations: decide(observations, sample),
            )

        return followings

    play = partial(simulator_play, model, family, batch_size=batch_size)
    return Incumbent(follow, play)


def _tokens(model: SequenceModel, context: Transitions, batch_size: int) -> Tensor:
    """Return the tokens of contexts (n, t, width), whose images are encoded here and only here."""
    parts = []
    # A signal waits for the end of one part.
    for part in Context.of_parts(context.parts).split(part_size(model, batch_size)):
        if STOP_FLAG[0]:
            raise Interrupted
        parts.append(tokens_of(model, part, batch_size))
    return torch.cat(parts)


def deciding_in(model: SequenceModel, contexts: TaskContexts, tasks: NDArray[np.int64]) -> Decide:
    """Return the choice of a model's actions in simulators of `tasks` (m,), often repeated.

    The rollouts of a label use many simulators of one task, which read its context together.

    Args:
        model: the trained model.
        contexts: one context for each task.
        tasks: rows of the contexts.
    """
    fewest = int(np.unique(tasks, return_counts=True)[1].min())
    size = min(SIMULATORS_A_PASS, fewest)
    task_of_pass, places = _passes(tasks, size)
    return deciding(model, contexts.ask(task_of_pass, size), places)


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
