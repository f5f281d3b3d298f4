"""Playing one episode in n tabular tasks at once."""

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray

from sad_hpc.distill.block import Transitions
from sad_hpc.model.context import Context
from sad_hpc.tasks.base import TabularFamily, TabularMDPs

Act = Callable[[NDArray[np.int64], int], NDArray[np.int64]]
"""(states (n,), step) -> actions (n,)."""


def play_episode(family: TabularFamily, mdps: TabularMDPs, act: Act) -> Transitions:
    """An episode of T steps from the start state in each of n tasks.

    Args:
        family: gives T and the start state.
        mdps: one MDP a task (M = n).
        act: the policy.

    Returns:
        all transitions, in time order, states by number.
    """
    n_tasks, horizon = len(mdps.rewards), family.config.horizon
    tasks = np.arange(n_tasks)
    shape = (n_tasks, horizon)
    episode = Transitions(
        np.empty(shape, np.uint16),
        np.empty(shape, np.uint8),
        np.empty(shape, np.float32),
        np.empty(shape, np.uint16),
    )
    states = np.full(n_tasks, family.start_state, np.int64)
    for step in range(horizon):
        actions = act(states, step)
        episode.states[:, step], episode.actions[:, step] = states, actions
        episode.rewards[:, step] = mdps.rewards[tasks, states, actions]
        states = mdps.next_states[tasks, states, actions].astype(np.int64)
        episode.next_states[:, step] = states
    return episode


def as_context(family: TabularFamily, transitions: Transitions) -> Context:
    """Transitions by state number -> a model's context by coordinates."""
    return Context(
        states=torch.from_numpy(family.coordinates[transitions.states]),
        actions=torch.from_numpy(transitions.actions),
        rewards=torch.from_numpy(transitions.rewards),
        next_states=torch.from_numpy(family.coordinates[transitions.next_states]),
    )


def as_numbers(family: TabularFamily, context: Context) -> Transitions:
    """The inverse of `as_context`."""
    return Transitions(
        family.state_numbers(context.states.numpy()),
        context.actions.numpy(),
        context.rewards.numpy(),
        family.state_numbers(context.next_states.numpy()),
    )


def no_transitions(n_tasks: int) -> Transitions:
    """Before the first episode of n tasks."""
    none = np.empty((n_tasks, 0), np.uint16)
    return Transitions(none, none.astype(np.uint8), none.astype(np.float32), none)
