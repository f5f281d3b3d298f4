"""Algorithm 5 on tables of several steps: a roll-out takes them in one look-up each.

A stride is k steps of the behavior policy, one entry of its table for each step.  Where every
sequence of k entries leads from every state, and after how many steps it is first paid, is worked
out once for each MDP; a roll-out then draws sequences instead of actions, with the same law.
"""

from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray

from sad_hpc.distill.labels import MAX_CANDIDATES, NO_LABEL, Distiller, LabelRule, best_action
from sad_hpc.errors import ConfigError
from sad_hpc.kernels.interruption import LEFT, STOP
from sad_hpc.kernels.random import (
    digits_per_word,
    digits_product,
    digits_word,
    high_product,
    rejection_threshold,
)
from sad_hpc.tasks.base import STEP_BITS, TabularMDPs

TABLE_ENTRIES = 2**18
"""Of all MDPs' strides: 1 MiB, so that they stay in the second level of caches."""


@dataclass(frozen=True)
class Strides:
    """What k steps lead to, in M MDPs; a roll-out that was paid stays in a row of its own."""

    first: NDArray[np.uint32]
    """(M, S, A): the row after a roll-out's first step, by its action."""
    table: NDArray[np.uint32]
    """(M, (S + 1) x W): the entry for a row and one of W = K^k sequences; the row S is `paid`."""
    width: int
    """W."""
    steps: int
    """k."""

    @classmethod
    def of(cls, mdps: TabularMDPs, policy: NDArray[np.uint8], longest: int) -> "Strides":
        """The longest strides that are affordable, and no longer than `longest` steps.

        Args:
            mdps: M of them, in which rewards are 0 or 1.
            policy: table of the behavior policy, of K entries.
            longest: steps.

        Raises:
            ValueError: rewards are others.
            ConfigError: the policy is too fine for so many states.
        """
        if not np.isin(mdps.rewards, (0, 1)).all():
            raise ValueError("Algorithm 5 is for rewards of 0 and 1")
        count, n_states, _ = mdps.rewards.shape
        first = np.where(mdps.rewards > 0, n_states, mdps.next_states).astype(np.int64)
        stay = np.full((count, 1, len(policy)), n_states)
        one = np.concatenate([first[:, :, policy], stay], axis=1)  # (M, S + 1, K)
        one_taken = np.ones_like(one)
        one_taken[:, n_states] = 0
        mdp = np.arange(count)[:, None, None]
        rows, taken, steps = one, one_taken, 1  # (M, S + 1, K^k)
        while steps < longest and rows.size * len(policy) <= TABLE_ENTRIES:
            taken = (taken[..., None] + one_taken[mdp, rows]).reshape(count, n_states + 1, -1)
            rows = one[mdp, rows].reshape(count, n_states + 1, -1)
            steps += 1
        width = rows.shape[2]
        if (n_states + 1) * width > 2**STEP_BITS:
            raise ConfigError(
                f"data.behavior_policy takes a table of {width:,} entries, too many for "
                f"{n_states:,} states: use fractions with smaller denominators, such as 0.125"
            )
        entries = rows * width | taken << STEP_BITS
        return cls(
            (first * width).astype(np.uint32),
            entries.astype(np.uint32).reshape(count, -1),
            width,
            steps,
        )


class FewestSteps(Distiller):
    """Algorithm 5 in M MDPs, generalised to N_ep roll-outs an action."""

    remedy = "no roll-out found a reward: raise data.trust_horizon"

    def __init__(self, mdps: TabularMDPs, policy: NDArray[np.uint8], rule: LabelRule) -> None:
        self._rule = rule
        self._strides = Strides.of(mdps, policy, rule.trust_horizon - 1)
        # A roll-out's score by its steps to the reward; 0 stands for none.
        self._payoffs = np.append(0.0, rule.discount ** np.arange(rule.trust_horizon, dtype=float))

    def _fill(
        self,
        mdp_of_task: NDArray[np.int64],
        stream: NDArray[np.uint64],
        given: bool,
        query_states: NDArray[np.uint16],
        actions: NDArray[np.uint8],
    ) -> int:
        strides = self._strides
        transitions: int = _distill(
            strides.first,
            strides.table,
            strides.width,
            strides.steps,
            digits_per_word(strides.width),
            self._payoffs,
            self._rule.episodes_per_action,
            self._rule.best_episode,
            self._rule.random_ties,
            mdp_of_task,
            stream,
            given,
            query_states,
            actions,
            STOP,
        )
        return transitions


@njit(cache=True, nogil=True)
def _distill(  # type: ignore[no-untyped-def]  # pragma: no cover
    first,
    table,
    width,
    stride,
    digits,
    payoffs,
    episodes,
    best_episode,
    random_ties,
    mdp_of_task,
    stream,
    given,
    query_states,
    labels,
    stop,
):
    n_states, n_actions = np.uint64(first.shape[1]), first.shape[2]
    state_threshold = rejection_threshold(n_states)
    sequences, mask = np.uint64(width), np.uint32((1 << STEP_BITS) - 1)
    product = digits_product(width, digits)
    threshold = rejection_threshold(product)
    paid = np.uint32(first.shape[1] * width)
    horizon = len(payoffs) - 1
    scores = np.empty(n_actions, np.float64)
    rows = np.empty(n_actions, np.uint32)
    taken = np.empty(n_actions, np.int64)
    transitions = 0
    for task in range(len(mdp_of_task)):
        mdp = mdp_of_task[task]
        accepted = False
        for _ in range(1 if given else MAX_CANDIDATES):
            if given:
                query = np.uint64(query_states[task])
            else:
                query = high_product(digits_word(stream, n_states, state_threshold), n_states)
            for action in range(n_actions):
                scores[action] = 0
            limit = horizon
            for _ in range(episodes):
                if stop[0]:
                    return LEFT
                # A roll-out of each action, all of them a stride further at a time.
                for action in range(n_actions):
                    rows[action], taken[action] = first[mdp, query, action], 1
                step, unpaid = 1, True
                while step < limit and unpaid:
                    unpaid = False
                    action = 0
                    while action < n_actions:
                        word = digits_word(stream, product, threshold)
                        end = min(action + digits, n_actions)
                        while action < end:
                            place = np.uint64(rows[action]) + high_product(word, sequences)
                            word *= sequences
                            entry = table[mdp, place]
                            rows[action] = entry & mask
                            taken[action] += entry >> np.uint32(STEP_BITS)
                            unpaid |= rows[action] != paid
                            action += 1
                    step += stride
                fastest = limit
                for action in range(n_actions):
                    # The last stride may have gone further than the limit.
                    if rows[action] == paid and taken[action] <= limit:
                        if best_episode:
                            scores[action] = payoffs[taken[action]]  # never slower than before
                            fastest = min(fastest, taken[action])
                        else:
                            scores[action] += payoffs[taken[action]]
                        transitions += taken[action]
                    else:
                        transitions += limit
                limit = fastest
            best = best_action(scores, random_ties, stream)
            if scores[best] > 0:
                query_states[task] = query
                labels[task] = best
                accepted = True
                break
        if not accepted:
            if not given:
                return -1
            labels[task] = NO_LABEL
    return transitions
