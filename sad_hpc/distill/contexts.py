"""Contexts under the behavior policy: Algorithm 1 and rollouts, for tabular families.

Kernels work on state numbers and write what a dataset stores: rows of coordinates.  MDPs are given
once each (M of them), with the number of its MDP for every task.  One thread a rank; no I/O.
"""

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from sad_hpc.distill.block import Transitions
from sad_hpc.kernels.random import (
    MAX_PRODUCT,
    digits_per_word,
    digits_product,
    digits_word,
    high_product,
    rejection_threshold,
)
from sad_hpc.tasks.base import TabularFamily, TabularMDPs


def sample_transitions(
    family: TabularFamily,
    mdps: TabularMDPs,
    mdp_of_task: NDArray[np.int64],
    policy: NDArray[np.uint8],
    stream: NDArray[np.uint64],
) -> Transitions:
    """Algorithm 1: in each of T steps a state drawn uniformly and an action of the policy.

    Args:
        family: of the tasks; gives T.
        mdps: M of them.
        mdp_of_task: (n,) in 0..M-1.
        policy: table of the behavior policy (see `policy_table`).
        stream: state of the random stream; it is advanced.
    """
    pairs = _pairs_per_word(family.n_states, policy)
    result = new_contexts(family, len(mdp_of_task))
    tables = kernel_tables(family, mdps)
    _sample(*tables, mdp_of_task, policy, pairs, stream, *kernel_outputs(result))
    return result


def sample_episodes(
    family: TabularFamily,
    mdps: TabularMDPs,
    mdp_of_task: NDArray[np.int64],
    policy: NDArray[np.uint8],
    stream: NDArray[np.uint64],
) -> Transitions:
    """Rollouts of the behavior policy from the start, T steps each, in time order."""
    result = new_contexts(family, len(mdp_of_task))
    draw_actions(policy, stream, result.actions.reshape(-1))
    tables = kernel_tables(family, mdps)
    _rollout(*tables, mdp_of_task, family.start_state, *kernel_outputs(result))
    return result


def sample_state_actions(
    n_states: int, policy: NDArray[np.uint8], count: int, stream: NDArray[np.uint64]
) -> tuple[NDArray[np.uint16], NDArray[np.uint8]]:
    """(count,) states drawn uniformly, and (count,) actions of the behavior policy."""
    states = np.empty(count, np.uint16)
    actions = np.empty(count, np.uint8)
    _draw_pairs(n_states, policy, _pairs_per_word(n_states, policy), stream, states, actions)
    return states, actions


def draw_actions(
    policy: NDArray[np.uint8], stream: NDArray[np.uint64], actions: NDArray[np.uint8]
) -> None:
    """Fills (count,) `actions` with draws from the policy's table; the stream is advanced."""
    _draw(policy, digits_per_word(len(policy)), stream, actions)


def _pairs_per_word(n_states: int, policy: NDArray[np.uint8]) -> int:
    if n_states * len(policy) > MAX_PRODUCT:
        raise ValueError(f"{n_states} states x {len(policy)} policy entries exceed one word")
    return digits_per_word(n_states * len(policy))


def new_contexts(family: TabularFamily, count: int) -> Transitions:
    """Contexts (count, T) for a kernel to fill."""
    horizon, width = family.config.horizon, family.coordinates.shape[1]
    return Transitions(
        np.empty((count, horizon, width), np.uint8),
        np.empty((count, horizon), np.uint8),
        np.empty((count, horizon), family.reward_dtype),
        np.empty((count, horizon, width), np.uint8),
    )


def kernel_tables(family: TabularFamily, mdps: TabularMDPs) -> tuple[NDArray[Any], ...]:
    """What kernels look up: rows of coordinates, next states, rewards."""
    return _cells(family.coordinates), mdps.next_states, mdps.rewards


def kernel_outputs(result: Transitions) -> tuple[NDArray[Any], ...]:
    """What kernels fill, states as whole rows of coordinates."""
    return _cells(result.states), result.actions, result.rewards, _cells(result.next_states)


def _cells(coordinates: NDArray[np.uint8]) -> NDArray[Any]:
    """(..., d) -> (...): a record for each row, which a kernel copies in one go."""
    record = np.dtype([("cell", np.uint8, (coordinates.shape[-1],))])
    return coordinates.view(record)[..., 0]


@njit(cache=True, nogil=True)
def _draw(policy, digits, stream, actions):  # type: ignore[no-untyped-def]  # pragma: no cover
    policy_range = np.uint64(len(policy))
    product = digits_product(len(policy), digits)
    threshold = rejection_threshold(product)
    for first in range(0, len(actions), digits):
        word = digits_word(stream, product, threshold)
        for i in range(first, min(first + digits, len(actions))):
            actions[i] = policy[high_product(word, policy_range)]
            word *= policy_range


@njit(cache=True, nogil=True)
def _draw_pairs(n_states, policy, pairs, stream, states, actions):  # type: ignore[no-untyped-def]  # pragma: no cover
    state_range, policy_range = np.uint64(n_states), np.uint64(len(policy))
    product = digits_product(n_states * len(policy), pairs)
    threshold = rejection_threshold(product)
    for first in range(0, len(states), pairs):
        word = digits_word(stream, product, threshold)
        for i in range(first, min(first + pairs, len(states))):
            states[i] = high_product(word, state_range)
            word *= state_range
            actions[i] = policy[high_product(word, policy_range)]
            word *= policy_range


@njit(cache=True, nogil=True)
def _step(  # type: ignore[no-untyped-def]  # pragma: no cover
    cells, following, paid, mdp, state, action, task, t, states, actions, rewards, next_states
):
    """Writes a transition of an MDP, and returns its next state."""
    states[task, t] = cells[state]
    actions[task, t] = action
    rewards[task, t] = paid[mdp, state, action]
    state = np.uint64(following[mdp, state, action])
    next_states[task, t] = cells[state]
    return state


@njit(cache=True, nogil=True)
def _sample(  # type: ignore[no-untyped-def]  # pragma: no cover
    cells, following, paid, mdp_of_task, policy, pairs, stream, states, actions, rewards,
    next_states,
):  # fmt: skip
    state_range, policy_range = np.uint64(len(cells)), np.uint64(len(policy))
    product = digits_product(len(cells) * len(policy), pairs)
    threshold = rejection_threshold(product)
    word, left = np.uint64(0), 0
    for task in range(actions.shape[0]):
        mdp = mdp_of_task[task]
        for t in range(actions.shape[1]):
            if left == 0:
                word, left = digits_word(stream, product, threshold), pairs
            state = high_product(word, state_range)
            word *= state_range
            action = policy[high_product(word, policy_range)]
            word *= policy_range
            left -= 1
            _step(
                cells, following, paid, mdp, state, action, task, t,
                states, actions, rewards, next_states,
            )  # fmt: skip


@njit(cache=True, nogil=True)
def _rollout(  # type: ignore[no-untyped-def]  # pragma: no cover
    cells, following, paid, mdp_of_task, start_state, states, actions, rewards, next_states
):
    for task in range(actions.shape[0]):
        state = np.uint64(start_state)
        for t in range(actions.shape[1]):
            state = _step(
                cells, following, paid, mdp_of_task[task], state, actions[task, t], task, t,
                states, actions, rewards, next_states,
            )  # fmt: skip
