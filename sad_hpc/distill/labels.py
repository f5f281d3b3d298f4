"""Action labels by rollouts of the behavior policy: what Algorithms 3 and 5 have in common.

Both draw query states until some action's rollouts are good enough, and take the best action.  An
action's score is the mean over N_ep rollouts of N steps (the first step is the action itself) of
the discounted return; in sparse MDPs a rollout ends at the first reward, so that with N_ep = 1 the
best action is the one that needs the fewest steps, exactly as in Algorithm 5.

In sparse MDPs the score may also be the best of the N_ep rollouts: the label is the action of the
fastest of all then, which with N_ep = 1 is Algorithm 5 as well.  Where steps are certain, enough
rollouts make it an action of a shortest way, without Assumption 2, and with random ties any of
them; the mean has the random policy's own preference among them, but needs fewer rollouts to be
right.  A rollout is given up once it is slower than the fastest before it.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from sad_hpc.errors import UserError
from sad_hpc.experiment.integers import action_dtype
from sad_hpc.experiment.sections import DataConfig
from sad_hpc.kernels.random import high_product, next_word

MAX_CANDIDATES = 1_000_000
"""Query states that the search for one label tries before it fails."""


@dataclass(frozen=True)
class LabelRule:
    """Settings of label distillation: Algorithm 3 or 5."""

    trust_horizon: int
    """N: steps of a rollout."""
    episodes_per_action: int
    """N_ep."""
    discount: float
    """gamma."""
    stop_at_reward: bool
    """True: Algorithm 5 (sparse rewards); False: Algorithm 3 (dense rewards)."""
    return_threshold: float | None
    """R of Algorithm 3; Algorithm 5 asks for any reward at all."""
    random_ties: bool
    """Break ties at random instead of by the lowest action."""
    candidates: int = 1
    """First actions that are tried, where there are infinitely many."""
    best_episode: bool = False
    """Score by the fastest of the N_ep rollouts; only with `stop_at_reward`."""

    def __post_init__(self) -> None:
        if self.best_episode and not self.stop_at_reward:
            raise ValueError("the best of several rollouts is for sparse rewards")

    @classmethod
    def of(cls, data: DataConfig, sparse_reward: bool) -> "LabelRule":
        """Return the rule of a `data` section: Algorithm 5 for sparse rewards, else Algorithm 3."""
        return cls(
            trust_horizon=data.trust_horizon,
            episodes_per_action=data.episodes_per_action,
            discount=data.discount,
            stop_at_reward=sparse_reward,
            return_threshold=data.return_threshold,
            random_ties=data.tie_break == "random",
            candidates=data.candidates,
            best_episode=data.score == "fastest",
        )

    @property
    def discounts(self) -> NDArray[np.float64]:
        """Gamma to the power of the steps before, (N,)."""
        return self.discount ** np.arange(self.trust_horizon, dtype=np.float64)

    @property
    def least_score(self) -> float:
        """A query state is accepted if its best action scores at least this."""
        if self.stop_at_reward:
            return float(np.finfo(np.float64).tiny)
        return -math.inf if self.return_threshold is None else self.return_threshold


@dataclass(frozen=True)
class Labels:
    """K query states of each of n tasks, and an action label for each.

    Kernels know no K: they fill lists of m labels, of which each has its task.  A task that stands
    in such a list K times in a row has K labels, independent draws of the same algorithm.
    """

    query_states: NDArray[Any]
    """(m,) numbers or (m, 3) poses inside the kernels, (n, K, d) in a dataset."""
    actions: NDArray[Any]
    """(m,) numbers, or (m, a) float32 vectors; (n, K) or (n, K, a) in a dataset."""
    transitions: int = 0
    """Environment transitions spent on them in all."""

    def by_task(self, count: int) -> "Labels":
        """Reshape m = n K labels to those of n = `count` tasks: (n, K, d) and (n, K)."""
        queries, actions = (
            array.reshape(count, -1, *array.shape[1:])
            for array in (self.query_states, self.actions)
        )
        return Labels(queries, actions, self.transitions)


def hopeless(rule: LabelRule, query: str, tries: int = MAX_CANDIDATES) -> UserError:
    """Return the error for `tries` query states (or poses) below the threshold."""
    if rule.stop_at_reward:
        return UserError(
            f"no rollout found a reward from {tries:,} query {query}s: raise data.trust_horizon"
        )
    least = f"data.return_threshold={rule.return_threshold:g}"
    return UserError(
        f"none of {tries:,} query {query}s reached {least}: raise data.trust_horizon, or "
        "lower the threshold (null takes any)"
    )


def optimal_labels(
    optimal: NDArray[np.bool_], generator: np.random.Generator
) -> NDArray[Any]:  # fmt: skip
    """Return an optimal action (n,) of each query state, drawn uniformly among all optimal ones.

    Always the lowest one would be a policy of its own (in Darkroom: first x, then y) whose greedy
    copy was measured to be worse: it must know the goal's column exactly along the whole way.

    Args:
        optimal: (n, A) whether an action is optimal in the query state.
        generator: of the choice.
    """
    chosen = (optimal * (1 + generator.random(optimal.shape))).argmax(axis=1)
    return chosen.astype(action_dtype(optimal.shape[1]))


@njit(inline="always")
def best_action(scores, random_ties, stream):  # type: ignore[no-untyped-def]
    """Return the action of the highest score; among equals the lowest, or any with equal chance."""
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
