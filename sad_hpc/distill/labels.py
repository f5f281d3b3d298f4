"""Common parts of Algorithms 3 and 5, which label actions by rollouts of the behavior policy.

Both draw query states until an action's score reaches a threshold, and take the best action.  An
action's score is the mean discounted return of N_ep rollouts of N steps; the first step is the
action itself.  In sparse MDPs a rollout ends at the first reward.  With N_ep = 1 the best action
then has the fewest steps, as in Algorithm 5.

With `data.score: fastest`, the score in sparse MDPs is that of the fastest of the N_ep rollouts.
With N_ep = 1 this is Algorithm 5, too.  With deterministic steps and enough rollouts, the label is
an action of a shortest path without Assumption 2; random ties make all such actions possible.  The
mean needs fewer rollouts for an optimal label, but depends on the behavior policy.  A rollout stops
once it is slower than the fastest one before it.

With `data.continuation` below 1, each query state draws a trust horizon of its own: 1 step, and
another one with this chance, up to N.  A state whose fastest rollout has k steps then is accepted
with probability continuation^(k - 1).
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from sad_hpc.errors import UserError
from sad_hpc.experiment.numbers import action_dtype
from sad_hpc.experiment.per_round import last_round
from sad_hpc.experiment.sections import DataConfig
from sad_hpc.kernels.random import high_product, next_double, next_word

MAX_CANDIDATES = 1_000_000
"""Largest number of query states that the search for one label tries."""


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
    """R of Algorithm 3; Algorithm 5 requires any reward."""
    random_ties: bool
    """Break ties at random instead of by the lowest action."""
    common_actions: bool = False
    """The rollouts of all first actions share their random actions."""
    candidates: int = 1
    """Number of first actions that are tried if actions are continuous."""
    refinements: int = 0
    """Number of times that they are drawn again around the best ones."""
    continuation: float = 1.0
    """Chance that the trust horizon of a query state has another step, up to N."""
    best_episode: bool = False
    """Score by the fastest of the N_ep rollouts; only with `stop_at_reward`."""

    def __post_init__(self) -> None:
        if self.best_episode and not self.stop_at_reward:
            raise ValueError("the best of several rollouts is for sparse rewards")

    @classmethod
    def of(cls, data: DataConfig, sparse_reward: bool) -> "LabelRule":
        """Return the rule of a `data` section's last round.

        It is Algorithm 5 for sparse rewards, else Algorithm 3.
        """
        return cls(
            trust_horizon=last_round(data.trust_horizon),
            episodes_per_action=last_round(data.episodes_per_action),
            discount=last_round(data.discount),
            stop_at_reward=sparse_reward,
            return_threshold=data.return_threshold,
            random_ties=data.tie_break == "random",
            common_actions=data.common_actions,
            candidates=data.candidates,
            refinements=data.refinements,
            continuation=data.continuation,
            best_episode=data.score == "fastest",
        )

    @property
    def discounts(self) -> NDArray[np.float64]:
        """Discount factors of the steps of a rollout, (N,)."""
        return self.discount ** np.arange(self.trust_horizon, dtype=np.float64)

    @property
    def least_score(self) -> float:
        """Smallest score of the best action at which a query state is accepted."""
        if self.stop_at_reward:
            return float(np.finfo(np.float64).tiny)
        return -math.inf if self.return_threshold is None else self.return_threshold


@dataclass(frozen=True)
class Labels:
    """K query states of each of n tasks, and an action label for each.

    Kernels fill lists of m = n K labels, each with its task.  The K labels of a task are adjacent
    and independent.
    """

    query_states: NDArray[Any]
    """(m,) numbers or (m, 3) poses inside the kernels, (n, K, d) in a dataset."""
    actions: NDArray[Any]
    """(m,) numbers, or (m, a) float32 vectors; (n, K) or (n, K, a) in a dataset."""
    transitions: int = 0
    """Total number of environment transitions of their rollouts."""

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
        "lower the threshold (null accepts any)"
    )


def optimal_labels(
    optimal: NDArray[np.bool_], data: DataConfig, generator: np.random.Generator
) -> NDArray[Any]:
    """Return the oracle's action label (n,) of each query state.

    The lowest ones define a specific policy (in Darkroom: first x, then y).  A model of that policy
    has lower returns, because it needs the goal's exact column.

    Args:
        optimal: (n, A) whether an action is optimal in the query state.
        data: `oracle_tie_break` and `oracle_error`.
        generator: random numbers of the draw.
    """
    draws = data.oracle_tie_break == "random"
    weights = 1 + generator.random(optimal.shape) if draws else 1
    chosen = (optimal * weights).argmax(axis=1)
    if data.oracle_error:
        wrong = (generator.random(len(optimal)) < data.oracle_error) & ~optimal.all(axis=1)
        weights = 1 + generator.random(optimal.shape)
        chosen = np.where(wrong, (~optimal * weights).argmax(axis=1), chosen)
    return chosen.astype(action_dtype(optimal.shape[1]))


@njit(inline="always")
def drawn_horizon(continuation, largest, stream):  # type: ignore[no-untyped-def]
    """Return the trust horizon of a query state, `largest` at most."""
    steps = 1 if continuation < 1 else largest
    while steps < largest and next_double(stream) < continuation:
        steps += 1
    return steps


@njit(inline="always")
def best_action(scores, random_ties, stream):  # type: ignore[no-untyped-def]
    """Return the action with the highest score; ties go to the lowest action or a random one."""
    best, equals = 0, 1
    for action in range(1, len(scores)):
        if scores[action] > scores[best]:
            best, equals = action, 1
        elif random_ties and scores[action] == scores[best]:
            equals += 1
            # The k-th of the equals replaces the choice with probability 1/k.
            if high_product(next_word(stream), np.uint64(equals)) == 0:
                best = action
    return best
