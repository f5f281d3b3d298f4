"""Contexts under the behavior policy: Algorithm 1 and roll-outs, for tabular families.

Kernels work on state numbers.  MDPs are given once each (M of them), with the number of its MDP for
every task.  One thread a rank; no I/O.
"""

from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray

from sad_hpc.distill.random import (
    MAX_PRODUCT,
    digits_per_word,
    digits_product,
    digits_word,
    high_product,
    rejection_threshold,
)
from sad_hpc.tasks.base import TabularMDPs


@dataclass(frozen=True)
class Transitions:
    """n contexts of T transitions: all (n, T)."""

    states: NDArray[np.uint16]
    actions: NDArray[np.uint8]
    rewards: NDArray[np.float32]
    next_states: NDArray[np.uint16]


def sample_transitions(
    mdps: TabularMDPs,
    mdp_of_task: NDArray[np.int64],
    policy: NDArray[np.uint8],
    horizon: int,
    stream: NDArray[np.uint64],
) -> Transitions:
    """Algorithm 1: in each of T steps a state drawn uniformly and an action of the policy.

    Args:
        mdps: M MDPs.
        mdp_of_task: (n,) in 0..M-1.
        policy: table of the behavior policy (see `policy_table`).
        horizon: T.
        stream: state of the random stream; it is advanced.
    """
    shape = (len(mdp_of_task), horizon)
    n_states = mdps.next_states.shape[1]
    states, actions = sample_state_actions(n_states, policy, shape[0] * horizon, stream)
    states, actions = states.reshape(shape), actions.reshape(shape)
    next_states = np.empty(shape, np.uint16)
    rewards = np.empty(shape, np.float32)
    _execute(mdps.next_states, mdps.rewards, mdp_of_task, states, actions, next_states, rewards)
    return Transitions(states, actions, rewards, next_states)


def sample_episodes(
    mdps: TabularMDPs,
    mdp_of_task: NDArray[np.int64],
    policy: NDArray[np.uint8],
    horizon: int,
    start_state: int,
    stream: NDArray[np.uint64],
) -> Transitions:
    """Roll-outs of the behavior policy from `start_state`, T steps each, in time order."""
    shape = (len(mdp_of_task), horizon)
    result = Transitions(
        np.empty(shape, np.uint16),
        np.empty(shape, np.uint8),
        np.empty(shape, np.float32),
        np.empty(shape, np.uint16),
    )
    _roll_out(
        mdps.next_states,
        mdps.rewards,
        mdp_of_task,
        policy,
        digits_per_word(len(policy)),
        start_state,
        stream,
        result.states,
        result.actions,
        result.rewards,
        result.next_states,
    )
    return result


def sample_state_actions(
    n_states: int, policy: NDArray[np.uint8], count: int, stream: NDArray[np.uint64]
) -> tuple[NDArray[np.uint16], NDArray[np.uint8]]:
    """(count,) states drawn uniformly, and (count,) actions of the behavior policy."""
    if n_states * len(policy) > MAX_PRODUCT:
        raise ValueError(f"{n_states} states x {len(policy)} policy entries exceed one word")
    states = np.empty(count, np.uint16)
    actions = np.empty(count, np.uint8)
    pairs = digits_per_word(n_states * len(policy))
    _draw_state_actions(n_states, policy, pairs, stream, states, actions)
    return states, actions


@njit(cache=True, nogil=True)
def _draw_state_actions(n_states, policy, pairs, stream, states, actions):  # type: ignore[no-untyped-def]  # pragma: no cover
    state_range, policy_range = np.uint64(n_states), np.uint64(len(policy))
    product = digits_product(n_states * len(policy), pairs)
    threshold = rejection_threshold(product)
    count = len(states)
    first = 0
    while first < count:
        word = digits_word(stream, product, threshold)
        last = min(first + pairs, count)
        for i in range(first, last):
            states[i] = high_product(word, state_range)
            word *= state_range
            actions[i] = policy[high_product(word, policy_range)]
            word *= policy_range
        first = last


@njit(cache=True, nogil=True)
def _execute(tables, reward_tables, mdp_of_task, states, actions, next_states, rewards):  # type: ignore[no-untyped-def]  # pragma: no cover
    for task in range(states.shape[0]):
        mdp = mdp_of_task[task]
        for t in range(states.shape[1]):
            state, action = states[task, t], actions[task, t]
            next_states[task, t] = tables[mdp, state, action]
            rewards[task, t] = reward_tables[mdp, state, action]


@njit(cache=True, nogil=True)
def _roll_out(  # type: ignore[no-untyped-def]  # pragma: no cover
    tables,
    reward_tables,
    mdp_of_task,
    policy,
    digits,
    start_state,
    stream,
    states,
    actions,
    rewards,
    next_states,
):
    policy_range = np.uint64(len(policy))
    product = digits_product(len(policy), digits)
    threshold = rejection_threshold(product)
    word, left = np.uint64(0), 0
    for task in range(states.shape[0]):
        mdp = mdp_of_task[task]
        state = np.uint16(start_state)
        for t in range(states.shape[1]):
            if left == 0:
                word, left = digits_word(stream, product, threshold), digits
            action = policy[high_product(word, policy_range)]
            word *= policy_range
            left -= 1
            states[task, t] = state
            actions[task, t] = action
            rewards[task, t] = reward_tables[mdp, state, action]
            state = tables[mdp, state, action]
            next_states[task, t] = state
