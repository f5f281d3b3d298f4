"""Episodes of T steps in n tabular tasks.

If an episode ends before T steps, the agent continues from a new start until it has taken T steps,
as in the `episodes` of a dataset.  Only the first episode counts for the return.
"""

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray

from sad_hpc.distill.block import Transitions
from sad_hpc.model.context import Context
from sad_hpc.tasks.mdps import FiniteMDPs, Starts, drawn
from sad_hpc.tasks.tabular import TabularFamily

Act = Callable[[NDArray[np.int64], int], NDArray[np.int64]]
"""A policy: (states (n,), step) -> actions (n,)."""


def play_episode(
    family: TabularFamily,
    mdps: FiniteMDPs,
    act: Act,
    generator: np.random.Generator,
    mdp_of_task: NDArray[np.int64] | None = None,
) -> Transitions:
    """Play T steps from a start state in each of n tasks.

    Args:
        family: family with T and the start states.
        mdps: M MDPs.
        act: the policy.
        generator: random numbers of the tasks.
        mdp_of_task: (n,) in 0..M-1; None: each MDP is a task.

    Returns:
        all transitions in time order, with states by number.
    """
    tasks = np.arange(mdps.sizes[0]) if mdp_of_task is None else mdp_of_task
    horizon, starts = family.config.horizon, family.starts(mdps)
    shape = (len(tasks), horizon)
    episode = Transitions(
        np.empty(shape, np.uint16),
        np.empty(shape, family.action_dtype),
        np.empty(shape, np.float32),
        np.empty(shape, np.uint16),
        np.empty(shape, np.uint8) if family.has_ends else None,
    )
    states = begin(starts, tasks, generator)
    for step in range(horizon):
        actions = act(states, step)
        episode.states[:, step], episode.actions[:, step] = states, actions
        states, episode.rewards[:, step], ended = mdps.draw(tasks, states, actions, generator)
        episode.next_states[:, step] = states
        if episode.ends is not None:
            episode.ends[:, step] = ended
        if ended.any():
            states[ended] = begin(starts, tasks[ended], generator)
    return episode


def begin(
    starts: Starts, tasks: NDArray[np.int64], generator: np.random.Generator
) -> NDArray[np.int64]:
    """Draw start states of tasks (n,), (n,)."""
    if isinstance(starts, int):
        return np.full(len(tasks), starts, np.int64)
    return drawn(starts[tasks], generator)


def returns_of(played: Transitions) -> NDArray[np.float32]:
    """Return the returns (n,) of the first episodes in transitions (n, T)."""
    if played.ends is None:
        return played.rewards.sum(axis=1)
    before = played.ends.cumsum(axis=1) - played.ends
    return (played.rewards * (before == 0)).sum(axis=1)


def as_context(family: TabularFamily, transitions: Transitions) -> Context:
    """Convert transitions with state numbers to a model's context with coordinates."""
    return Context(
        states=torch.from_numpy(family.coordinates[transitions.states]),
        actions=torch.from_numpy(transitions.actions),
        rewards=torch.from_numpy(transitions.rewards),
        next_states=torch.from_numpy(family.coordinates[transitions.next_states]),
        ends=None if transitions.ends is None else torch.from_numpy(transitions.ends),
    )


def as_numbers(family: TabularFamily, context: Context) -> Transitions:
    """Invert `as_context`."""
    assert context.next_states is not None
    return Transitions(
        family.state_numbers(context.states.numpy()),
        context.actions.numpy(),
        context.rewards.numpy(),
        family.state_numbers(context.next_states.numpy()),
        None if context.ends is None else context.ends.numpy(),
    )


def no_transitions(family: TabularFamily, n_tasks: int) -> Transitions:
    """Return the empty transitions before the first episode of n tasks."""
    none = np.empty((n_tasks, 0), np.uint16)
    actions = none.astype(family.action_dtype)
    ends = none.astype(np.uint8) if family.has_ends else None
    return Transitions(none, actions, none.astype(np.float32), none, ends)
