"""Contexts from tabular Q-learning in every task, the source policy of AD.

AD's context shows how a task's learner improves: k whole episodes of T steps in the order of their
ages, which are uniform over the learning history.  No transition shows the reset between episodes:
a state that differs from the previous next state begins one.
"""

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from sad_hpc.distill.block import Transitions
from sad_hpc.distill.contexts import kernel_outputs, kernel_tables, new_contexts
from sad_hpc.kernels.interruption import INTERRUPTED, STOP_FLAG, raise_if_interrupted
from sad_hpc.kernels.random import (
    digits_product,
    digits_word,
    high_product,
    next_double,
    rejection_threshold,
)
from sad_hpc.tasks.mdps import TabularMDPs
from sad_hpc.tasks.tabular import TabularFamily

LEARNING_RATE = 0.1
LAST_EXPLORATION = 0.05
"""Final share of steps by the behavior policy, which falls linearly from 1 over the history."""


def sample_histories(
    family: TabularFamily,
    mdps: TabularMDPs,
    mdp_of_task: NDArray[np.int64],
    policy: NDArray[Any],
    steps: int,
    kept: int,
    discount: float,
    stream: NDArray[np.uint64],
) -> Transitions:
    """Return k episodes of each task's learning history, in time order, (n, k T).

    Each is a uniform draw among the history's whole episodes, so that one may occur twice.
    Episodes have T steps; Q starts at 0, and ties go to the lowest action.

    Args:
        family: family of the tasks, with T and the start.
        mdps: M distinct MDPs.
        mdp_of_task: (n,) in 0..M-1.
        policy: table of the behavior policy for exploration.
        steps: number of steps of the history, T or more.
        kept: k.
        discount: gamma.
        stream: state of the random stream; it is advanced.

    Raises:
        Interrupted: STOP_FLAG was set.
    """
    horizon = family.config.horizon
    result = new_contexts(family, len(mdp_of_task), kept * horizon)
    spent = _learn(
        *kernel_tables(family, mdps), mdp_of_task, policy, family.start_state, steps, horizon,
        discount, stream, *kernel_outputs(result), STOP_FLAG,
    )  # fmt: skip
    raise_if_interrupted(spent)
    return result


@njit(cache=True, nogil=True)
def _learn(  # type: ignore[no-untyped-def]
    cells, tables, mdp_of_task, policy, start_state, steps, horizon, discount, stream, states,
    actions, rewards, next_states, ends, stop,
):  # fmt: skip
    following, paid = tables.following, tables.paid
    n_states, n_actions = len(cells), following.shape[2]
    policy_range = np.uint64(len(policy))
    product = digits_product(len(policy), 1)
    threshold = rejection_threshold(product)
    q = np.empty((n_states, n_actions), np.float64)
    ages = np.empty(actions.shape[1] // horizon, np.int64)  # numbers of the kept episodes
    for task in range(len(mdp_of_task)):
        mdp = mdp_of_task[task]
        q[:] = 0
        for place in range(len(ages)):
            ages[place] = int(next_double(stream) * (steps // horizon))
        ages.sort()
        state = start_state
        for step in range(steps):
            if step % horizon == 0:
                if stop[0]:
                    return INTERRUPTED
                state = start_state
            best = 0
            for action in range(1, n_actions):
                if q[state, action] > q[state, best]:
                    best = action
            explored = 1 - (1 - LAST_EXPLORATION) * step / steps
            action = best
            if next_double(stream) < explored:
                action = policy[high_product(digits_word(stream, product, threshold), policy_range)]
            reward, after = paid[mdp, state, action], following[mdp, state, action]
            value = q[after, 0]
            for other in range(1, n_actions):
                value = max(value, q[after, other])
            q[state, action] += LEARNING_RATE * (reward + discount * value - q[state, action])
            for place in range(len(ages)):
                if ages[place] == step // horizon:
                    t = place * horizon + step % horizon
                    states[task, t], next_states[task, t] = cells[state], cells[after]
                    actions[task, t], rewards[task, t] = action, reward
            state = after
    return len(mdp_of_task) * steps
