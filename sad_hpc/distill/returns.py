"""Algorithm 3: the label is the action whose roll-outs of N steps have the largest mean return."""

import numpy as np
from numba import njit
from numpy.typing import NDArray

from sad_hpc.distill.labels import MAX_CANDIDATES, NO_LABEL, Distiller, LabelRule, best_action
from sad_hpc.kernels.interruption import LEFT, STOP
from sad_hpc.kernels.random import (
    digits_per_word,
    digits_product,
    digits_word,
    high_product,
    rejection_threshold,
)
from sad_hpc.tasks.base import TabularMDPs


class LargestReturn(Distiller):
    """Algorithm 3 in M MDPs, generalised to N_ep roll-outs an action."""

    remedy = (
        "no query state reached the return threshold: raise data.trust_horizon or lower "
        "data.return_threshold"
    )

    def __init__(self, mdps: TabularMDPs, policy: NDArray[np.uint8], rule: LabelRule) -> None:
        self._mdps, self._policy, self._rule = mdps, policy, rule

    def _fill(
        self,
        mdp_of_task: NDArray[np.int64],
        stream: NDArray[np.uint64],
        given: bool,
        query_states: NDArray[np.uint16],
        actions: NDArray[np.uint8],
    ) -> int:
        rule = self._rule
        transitions: int = _distill(
            self._mdps.next_states,
            self._mdps.rewards,
            mdp_of_task,
            self._policy,
            digits_per_word(len(self._policy)),
            rule.discount ** np.arange(rule.trust_horizon, dtype=np.float64),
            rule.episodes_per_action,
            rule.return_threshold,
            rule.random_ties,
            stream,
            given,
            query_states,
            actions,
            STOP,
        )
        return transitions


@njit(cache=True, nogil=True)
def _distill(  # type: ignore[no-untyped-def]  # pragma: no cover
    tables,
    reward_tables,
    mdp_of_task,
    policy,
    digits,
    discounts,
    episodes,
    return_threshold,
    random_ties,
    stream,
    given,
    query_states,
    labels,
    stop,
):
    n_states, n_actions = np.uint64(tables.shape[1]), tables.shape[2]
    state_threshold = rejection_threshold(n_states)
    policy_range = np.uint64(len(policy))
    product = digits_product(len(policy), digits)
    threshold = rejection_threshold(product)
    word, left = np.uint64(0), 0
    scores = np.empty(n_actions, np.float64)
    candidates = 0
    for task in range(len(mdp_of_task)):
        mdp = mdp_of_task[task]
        accepted = False
        for _ in range(1 if given else MAX_CANDIDATES):
            candidates += 1
            if given:
                query = np.uint64(query_states[task])
            else:
                query = high_product(digits_word(stream, n_states, state_threshold), n_states)
            for first_action in range(n_actions):
                score = 0.0
                for _ in range(episodes):
                    if stop[0]:
                        return LEFT
                    state = query
                    action = np.uint8(first_action)
                    for t in range(len(discounts)):
                        if t > 0:
                            if left == 0:
                                word, left = digits_word(stream, product, threshold), digits
                            action = policy[high_product(word, policy_range)]
                            word *= policy_range
                            left -= 1
                        score += discounts[t] * reward_tables[mdp, state, action]
                        state = np.uint64(tables[mdp, state, action])
                scores[first_action] = score / episodes
            best = best_action(scores, random_ties, stream)
            if scores[best] >= return_threshold:
                query_states[task] = query
                labels[task] = best
                accepted = True
                break
        if not accepted:
            if not given:
                return -1
            labels[task] = NO_LABEL
    return candidates * n_actions * episodes * len(discounts)
