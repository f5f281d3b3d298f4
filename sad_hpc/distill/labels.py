"""Action labels by roll-outs of the behavior policy: Algorithms 3 and 5, for tabular families.

Both draw query states until some action's roll-outs are good enough, and take the best action.  An
action's score is the mean over N_ep roll-outs of N steps (the first step is the action itself) of
the discounted return; in sparse MDPs a roll-out ends at the first reward, so that with N_ep = 1 the
best action is the one that needs the fewest steps, exactly as in Algorithm 5.
"""

from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray

from sad_hpc.distill.random import (
    digits_per_word,
    digits_product,
    digits_word,
    high_product,
    next_word,
    rejection_threshold,
)
from sad_hpc.errors import SadError
from sad_hpc.experiment import DataConfig
from sad_hpc.tasks.base import TabularMDPs

MAX_CANDIDATES = 1_000_000
"""Query states tried for one task before the search is given up as hopeless."""


@dataclass(frozen=True)
class LabelRule:
    """How labels are distilled."""

    trust_horizon: int
    """N: steps of a roll-out."""
    episodes_per_action: int
    """N_ep."""
    discount: float
    """gamma."""
    stop_at_reward: bool
    """True: Algorithm 5 (sparse rewards); False: Algorithm 3 (dense rewards)."""
    return_threshold: float
    """R of Algorithm 3; Algorithm 5 asks for any reward at all."""
    random_ties: bool
    """Break ties at random instead of by the lowest action."""

    @classmethod
    def of(cls, data: DataConfig, sparse_reward: bool) -> "LabelRule":
        """The rule that a `data` section asks for: Algorithm 5 for sparse rewards, else 3."""
        return cls(
            trust_horizon=data.trust_horizon,
            episodes_per_action=data.episodes_per_action,
            discount=data.discount,
            stop_at_reward=sparse_reward,
            return_threshold=data.return_threshold,
            random_ties=data.tie_break == "random",
        )

    @property
    def least_score(self) -> float:
        """A query state is accepted if its best action scores at least this."""
        return float(np.finfo(np.float64).tiny) if self.stop_at_reward else self.return_threshold


@dataclass(frozen=True)
class Labels:
    """A query state and an action label for each of n tasks."""

    query_states: NDArray[np.uint16]
    """(n,)"""
    actions: NDArray[np.uint8]
    """(n,)"""
    transitions: int
    """Environment transitions spent on them in all."""


def distill_labels(
    mdps: TabularMDPs,
    mdp_of_task: NDArray[np.int64],
    policy: NDArray[np.uint8],
    rule: LabelRule,
    stream: NDArray[np.uint64],
) -> Labels:
    """Algorithm 5 (`stop_at_reward`) or Algorithm 3, generalised to N_ep roll-outs an action.

    Args:
        mdps: M MDPs.
        mdp_of_task: (n,) in 0..M-1.
        policy: table of the behavior policy (see `policy_table`).
        rule: trust horizon and the rest.
        stream: state of the random stream; it is advanced.

    Raises:
        SadError: for some task no query state was good enough in a million tries.
    """
    n_tasks = len(mdp_of_task)
    query_states = np.empty(n_tasks, np.uint16)
    actions = np.empty(n_tasks, np.uint8)
    transitions = _distill(
        mdps.next_states,
        mdps.rewards,
        mdp_of_task,
        policy,
        digits_per_word(len(policy)),
        rule.discount ** np.arange(rule.trust_horizon, dtype=np.float64),
        rule.episodes_per_action,
        rule.stop_at_reward,
        rule.least_score,
        rule.random_ties,
        stream,
        query_states,
        actions,
    )
    if transitions < 0:
        raise SadError(
            f"no query state reached the return threshold in {MAX_CANDIDATES:,} tries: raise "
            "data.trust_horizon or lower data.return_threshold"
        )
    return Labels(query_states, actions, transitions)


def optimal_labels(
    optimal: NDArray[np.bool_], generator: np.random.Generator
) -> NDArray[np.uint8]:  # fmt: skip
    """(n,): an optimal action of each query state, any of them with equal chance.

    Always the lowest one would be a policy of its own (in Darkroom: first x, then y) whose greedy
    copy was measured to be worse: it must know the goal's column exactly along the whole way.

    Args:
        optimal: (n, A) whether an action is optimal in the query state.
        generator: of the choice.
    """
    return (optimal * (1 + generator.random(optimal.shape))).argmax(axis=1).astype(np.uint8)


@njit(cache=True, nogil=True)
def _distill(  # type: ignore[no-untyped-def]  # pragma: no cover
    tables,
    reward_tables,
    mdp_of_task,
    policy,
    digits,
    discounts,
    episodes,
    stop_at_reward,
    least_score,
    random_ties,
    stream,
    query_states,
    labels,
):
    n_states, n_actions = np.uint64(tables.shape[1]), tables.shape[2]
    state_threshold = rejection_threshold(n_states)
    policy_range = np.uint64(len(policy))
    product = digits_product(len(policy), digits)
    threshold = rejection_threshold(product)
    word, left = np.uint64(0), 0
    steps = len(discounts)
    scores = np.empty(n_actions, np.float64)
    transitions = 0
    for task in range(len(mdp_of_task)):
        mdp = mdp_of_task[task]
        accepted = False
        for _ in range(MAX_CANDIDATES):
            query = high_product(digits_word(stream, n_states, state_threshold), n_states)
            for first_action in range(n_actions):
                score = 0.0
                for _ in range(episodes):
                    state = query
                    action = np.uint8(first_action)
                    for t in range(steps):
                        if t > 0:
                            if left == 0:
                                word, left = digits_word(stream, product, threshold), digits
                            action = policy[high_product(word, policy_range)]
                            word *= policy_range
                            left -= 1
                        reward = reward_tables[mdp, state, action]
                        state = np.uint64(tables[mdp, state, action])
                        transitions += 1
                        score += discounts[t] * reward
                        if stop_at_reward and reward > 0:
                            break
                scores[first_action] = score / episodes
            best = best_action(scores, random_ties, stream)
            if scores[best] >= least_score:
                query_states[task] = query
                labels[task] = best
                accepted = True
                break
        if not accepted:
            return -1
    return transitions


@njit(inline="always")
def best_action(scores, random_ties, stream):  # type: ignore[no-untyped-def]  # pragma: no cover
    """The action of the highest score: the lowest one, or any of them with equal chance."""
    best, equals = 0, 1
    for action in range(1, len(scores)):
        if scores[action] > scores[best]:
            best, equals = action, 1
        elif random_ties and scores[action] == scores[best]:
            equals += 1
            # The k-th of the equals replaces the choice with chance 1/k.
            if high_product(next_word(stream), np.uint64(equals)) == 0:
                best = action
    return best
