"""Algorithms 3 and 5 on tables: the label is the action whose rollouts score best."""

import numpy as np
from numba import njit
from numpy.typing import NDArray

from sad_hpc.distill.labels import (
    MAX_CANDIDATES,
    NO_LABEL,
    LabelRule,
    Labels,
    best_action,
    hopeless,
)
from sad_hpc.distill.steps import can_be, step_tables, take
from sad_hpc.kernels.interruption import LEFT, STOP, finished
from sad_hpc.kernels.random import (
    digits_per_word,
    digits_product,
    digits_word,
    high_product,
    rejection_threshold,
)
from sad_hpc.tasks.mdps import FiniteMDPs


def distill_labels(
    mdps: FiniteMDPs,
    mdp_of_task: NDArray[np.int64],
    policy: NDArray[np.uint8],
    rule: LabelRule,
    stream: NDArray[np.uint64],
    given: NDArray[np.uint16] | None = None,
) -> Labels:
    """Algorithm 5 (`stop_at_reward`) or Algorithm 3, generalised to N_ep rollouts an action.

    A rollout stops where its episode ends.

    Args:
        mdps: M of them.
        mdp_of_task: (n,) in 0..M-1.
        policy: table of the behavior policy (see `policy_table`).
        rule: trust horizon and the rest.
        stream: state of the random stream; it is advanced.
        given: (n,) query states, which have NO_LABEL where they are not good enough; None: drawn
            until they are.

    Raises:
        SadError: for some task no query state was good enough in a million tries.
        Interrupted: it was told to stop.
    """
    query_states = np.empty(len(mdp_of_task), np.uint16) if given is None else given
    actions = np.empty(len(mdp_of_task), np.uint8)
    spent = _distill(
        step_tables(mdps), mdp_of_task, policy, digits_per_word(len(policy)),
        rule.discounts, rule.episodes_per_action, rule.stop_at_reward, rule.best_episode,
        rule.least_score, rule.random_ties, stream, given is not None, query_states, actions, STOP,
    )  # fmt: skip
    if finished(spent) < 0:
        raise hopeless(rule, "state")
    return Labels(query_states, actions, spent)


@njit(cache=True, nogil=True)
def _distill(  # type: ignore[no-untyped-def]  # pragma: no cover
    tables, mdp_of_task, policy, digits, discounts, episodes, stop_at_reward, best_episode,
    least_score, random_ties, stream, given, query_states, labels, stop,
):  # fmt: skip
    n_states, n_actions = np.uint64(tables.paid.shape[1]), tables.paid.shape[2]
    state_threshold = rejection_threshold(n_states)
    policy_range = np.uint64(len(policy))
    product = digits_product(len(policy), digits)
    threshold = rejection_threshold(product)
    word, left = np.uint64(0), 0
    scores = np.empty(n_actions, np.float64)
    transitions = 0
    for task in range(len(mdp_of_task)):
        mdp = mdp_of_task[task]
        accepted = False
        for _ in range(1 if given else MAX_CANDIDATES):
            if given:
                query = np.uint64(query_states[task])
            else:
                query = high_product(digits_word(stream, n_states, state_threshold), n_states)
                while not can_be(tables, mdp, query):
                    query = high_product(digits_word(stream, n_states, state_threshold), n_states)
            limit = len(discounts)
            scores[:] = 0
            for _ in range(episodes):
                if stop[0]:
                    return LEFT
                for first_action in range(n_actions):  # in turn: any may be the fastest so far
                    state, action = query, np.uint8(first_action)
                    for t in range(limit):
                        if t > 0:
                            if left == 0:
                                word, left = digits_word(stream, product, threshold), digits
                            action = policy[high_product(word, policy_range)]
                            word *= policy_range
                            left -= 1
                        state, reward, end = take(tables, mdp, state, action, stream)
                        transitions += 1
                        if not best_episode:
                            scores[first_action] += discounts[t] * reward
                        elif reward > 0:
                            scores[first_action], limit = discounts[t], t + 1
                        if end or (stop_at_reward and reward > 0):
                            break
            if not best_episode:
                scores /= episodes
            best = best_action(scores, random_ties, stream)
            if scores[best] >= least_score:
                query_states[task] = query
                labels[task] = best
                accepted = True
                break
        if not accepted:
            if not given:
                return -1
            labels[task] = NO_LABEL
    return transitions
