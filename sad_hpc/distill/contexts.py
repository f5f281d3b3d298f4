"""Contexts of tabular families under the behavior policy: Algorithm 1 and rollouts.

Kernels compute with state numbers and write coordinates, as a dataset stores them.  Their arguments
are M distinct MDPs, and the number of the MDP of each task.
"""

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from sad_hpc.distill.block import Transitions
from sad_hpc.distill.steps import Certain, Uncertain, begin, can_be, start_table, step_tables, take
from sad_hpc.kernels.random import (
    MAX_PRODUCT,
    digits_per_word,
    digits_product,
    digits_word,
    high_product,
    rejection_threshold,
)
from sad_hpc.tasks.mdps import FiniteMDPs
from sad_hpc.tasks.tabular import TabularFamily


def sample_transitions(
    family: TabularFamily,
    mdps: FiniteMDPs,
    mdp_of_task: NDArray[np.int64],
    policy: NDArray[Any],
    stream: NDArray[np.uint64],
) -> Transitions:
    """Algorithm 1: in each of T steps, draw a state uniformly and an action by the policy.

    States are drawn from those that an episode can visit.

    Args:
        family: family of the tasks, with T.
        mdps: M distinct MDPs.
        mdp_of_task: (n,) in 0..M-1.
        policy: table of the behavior policy (see `policy_table`).
        stream: state of the random stream; it is advanced.
    """
    pairs = _pairs_per_word(family.n_states, policy)
    result = new_contexts(family, len(mdp_of_task), family.config.horizon)
    tables = kernel_tables(family, mdps)
    _sample(*tables, mdp_of_task, policy, pairs, stream, *kernel_outputs(result))
    return result


def sample_episodes(
    family: TabularFamily,
    mdps: FiniteMDPs,
    mdp_of_task: NDArray[np.int64],
    policy: NDArray[Any],
    stream: NDArray[np.uint64],
) -> Transitions:
    """Roll out the behavior policy from the start for T steps.

    The next episode begins after an end.
    """
    result = new_contexts(family, len(mdp_of_task), family.config.horizon)
    draw_actions(policy, stream, result.actions.reshape(-1))
    tables = kernel_tables(family, mdps)
    starts = start_table(family.starts(mdps))
    _rollout(*tables, mdp_of_task, starts, stream, *kernel_outputs(result))
    return result


def sample_state_actions(
    mdps: FiniteMDPs,
    mdp_of_query: NDArray[np.int64],
    policy: NDArray[Any],
    stream: NDArray[np.uint64],
) -> tuple[NDArray[np.uint16], NDArray[Any]]:
    """Draw states (n,) uniformly, and actions (n,) by the behavior policy.

    Args:
        mdps: M distinct MDPs.
        mdp_of_query: (n,) in 0..M-1: the MDP whose occupied states are drawn.
        policy: table of the behavior policy (see `policy_table`).
        stream: state of the random stream; it is advanced.
    """
    n_states = mdps.sizes[1]
    states = np.empty(len(mdp_of_query), np.uint16)
    actions = np.empty(len(mdp_of_query), policy.dtype)
    pairs = _pairs_per_word(n_states, policy)
    tables = step_tables(mdps)
    _draw_pairs(tables, n_states, mdp_of_query, policy, pairs, stream, states, actions)
    return states, actions


def draw_actions(policy: NDArray[Any], stream: NDArray[np.uint64], actions: NDArray[Any]) -> None:
    """Fill (count,) `actions` with draws from the policy's table; the stream is advanced."""
    _draw(policy, digits_per_word(len(policy)), stream, actions)


def _pairs_per_word(n_states: int, policy: NDArray[Any]) -> int:
    if n_states * len(policy) > MAX_PRODUCT:
        raise ValueError(f"{n_states} states x {len(policy)} policy entries exceed one word")
    return digits_per_word(n_states * len(policy))


def new_contexts(family: TabularFamily, count: int, horizon: int) -> Transitions:
    """Return uninitialized contexts (count, horizon)."""
    cells = family.coordinates
    states = (count, horizon, cells.shape[1]), cells.dtype
    return Transitions(
        np.empty(*states),
        np.empty((count, horizon), family.action_dtype),
        np.empty((count, horizon), family.reward_dtype),
        np.empty(*states),
        np.empty((count, horizon), np.uint8) if family.has_ends else None,
    )


def kernel_tables(
    family: TabularFamily, mdps: FiniteMDPs
) -> tuple[NDArray[Any], Certain | Uncertain]:
    """Return what kernels read: rows of coordinates, and the tables of the MDPs."""
    return _cells(family.coordinates), step_tables(mdps)


def kernel_outputs(result: Transitions) -> tuple[NDArray[Any] | None, ...]:
    """Return the arrays that kernels write, states as whole rows; ends None: not recorded."""
    cells = _cells(result.states), _cells(result.next_states)
    return cells[0], result.actions, result.rewards, cells[1], result.ends


def _cells(coordinates: NDArray[Any]) -> NDArray[Any]:
    """View coordinates (..., d) as records (...), which a kernel copies at once."""
    record = np.dtype([("cell", coordinates.dtype, (coordinates.shape[-1],))])
    return coordinates.view(record)[..., 0]


@njit(cache=True, nogil=True)
def _draw(policy, digits, stream, actions):  # type: ignore[no-untyped-def]
    policy_range = np.uint64(len(policy))
    product = digits_product(len(policy), digits)
    threshold = rejection_threshold(product)
    for first in range(0, len(actions), digits):
        word = digits_word(stream, product, threshold)
        for i in range(first, min(first + digits, len(actions))):
            actions[i] = policy[high_product(word, policy_range)]
            word *= policy_range


@njit(cache=True, nogil=True)
def _ranges(n_states, policy, pairs):  # type: ignore[no-untyped-def]
    """Return the arguments of `_next_pair`: both ranges, their product, its threshold, `pairs`."""
    product = digits_product(n_states * len(policy), pairs)
    ranges = np.uint64(n_states), np.uint64(len(policy))
    return *ranges, product, rejection_threshold(product), pairs


@njit(cache=True, nogil=True)
def _next_pair(  # type: ignore[no-untyped-def]
    tables, mdp, policy, ranges, stream, word, left
):
    """Draw an occupied state and an action; also return the rest of the random word."""
    state_range, policy_range, product, threshold, pairs = ranges
    while True:
        if left == 0:
            word, left = digits_word(stream, product, threshold), pairs
        state = high_product(word, state_range)
        word *= state_range
        action = policy[high_product(word, policy_range)]
        word *= policy_range
        left -= 1
        if can_be(tables, mdp, state):
            return state, action, word, left


@njit(cache=True, nogil=True)
def _draw_pairs(  # type: ignore[no-untyped-def]
    tables, n_states, mdp_of_query, policy, pairs, stream, states, actions
):
    ranges, word, left = _ranges(n_states, policy, pairs), np.uint64(0), 0
    for i in range(len(states)):
        states[i], actions[i], word, left = _next_pair(
            tables, mdp_of_query[i], policy, ranges, stream, word, left
        )


@njit(cache=True, nogil=True)
def _step(  # type: ignore[no-untyped-def]
    cells, tables, mdp, state, action, stream, task, t, states, actions, rewards, next_states, ends
):
    """Write a transition of an MDP, and return its next state and whether the episode ends."""
    after, reward, end = take(tables, mdp, state, action, stream)
    states[task, t] = cells[state]
    actions[task, t] = action
    rewards[task, t] = reward
    next_states[task, t] = cells[after]
    if ends is not None:
        ends[task, t] = end
    return after, end


@njit(cache=True, nogil=True)
def _sample(  # type: ignore[no-untyped-def]
    cells, tables, mdp_of_task, policy, pairs, stream, states, actions, rewards, next_states, ends
):
    ranges, word, left = _ranges(len(cells), policy, pairs), np.uint64(0), 0
    for task in range(actions.shape[0]):
        mdp = mdp_of_task[task]
        for t in range(actions.shape[1]):
            state, action, word, left = _next_pair(tables, mdp, policy, ranges, stream, word, left)
            _step(
                cells, tables, mdp, state, action, stream, task, t,
                states, actions, rewards, next_states, ends,
            )  # fmt: skip


@njit(cache=True, nogil=True)
def _rollout(  # type: ignore[no-untyped-def]
    cells, tables, mdp_of_task, starts, stream, states, actions, rewards, next_states, ends
):
    for task in range(actions.shape[0]):
        mdp = mdp_of_task[task]
        state = begin(starts, mdp, stream)
        for t in range(actions.shape[1]):
            state, end = _step(
                cells, tables, mdp, state, actions[task, t], stream, task, t,
                states, actions, rewards, next_states, ends,
            )  # fmt: skip
            if end:
                state = begin(starts, mdp, stream)
