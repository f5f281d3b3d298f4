"""Candidates of a label in simulators: the first actions that are tried, and the choice among them.

Discrete actions are all tried.  Vectors are drawn: by the behavior policy, and from the second
round on half of them by the incumbent, since few uniform draws are better than a good vector.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sad_hpc.distill.labels import LabelRule
from sad_hpc.distill.rollout import Behavior, Followings

FROM_INCUMBENT = 0.5
"""Share of the incumbent, if there is one, in candidate vectors."""

AS_GOOD = 0.02
"""A vector is as good as the best if it is worse by less than this share of what vectors matter:
the mean difference of the best and those of the behavior policy.  Where they matter little, almost
any may be the best, and a model would learn noise."""


class Candidates:
    """The candidates of a search for labels.

    Args:
        behavior: policy that draws vectors.
        rule: settings of label distillation.
        following: the incumbent; None in the first round.
        generator: random numbers of ties.
    """

    def __init__(
        self,
        behavior: Behavior,
        rule: LabelRule,
        following: Followings | None,
        generator: np.random.Generator,
    ) -> None:
        self._behavior, self._rule, self._following = behavior, rule, following
        self._generator = generator
        self._gains: list[float] = []
        """By query state: how much better the best candidate is than those of `behavior`."""

    def with_incumbent(
        self, drawn: NDArray[Any], observations: NDArray[Any], tasks: NDArray[np.int64]
    ) -> tuple[NDArray[Any], NDArray[np.int64] | None]:
        """Return the candidates to try, and the numbers (m,) of the incumbent's actions among them.

        Args:
            drawn: candidates of the behavior policy, (m, C) or (m, C, a).  Of vectors, the first
                are replaced by the incumbent's likeliest one and by draws at temperature 1.
            observations: (m, ...) of the query states.
            tasks: (m,) of the query states.
        """
        if self._following is None:
            return drawn, None
        likeliest = self._following(tasks).likeliest(observations)
        if self._behavior.components is None:
            return drawn, likeliest
        candidates = drawn.copy()
        candidates[:, 0] = likeliest
        if draws := _n_of_incumbent(drawn.shape[1]) - 1:
            again = self._following(np.repeat(tasks, draws))
            vectors = again.drawn(np.repeat(observations, draws, axis=0))
            candidates[:, 1 : 1 + draws] = vectors.reshape(len(tasks), draws, -1)
        return candidates, np.zeros(len(candidates), np.int64)

    def best(
        self, scores: NDArray[np.float64], kept: NDArray[np.int64] | None
    ) -> NDArray[np.int64]:
        """Return the candidates (m,) with the best scores (m, C).

        Ties, of vectors near ties, go to the incumbent's actions `kept` (m,).  Without it they go
        to the first candidate only in Algorithm 5 without `random_ties`.  In Algorithm 3 that would
        bias the model to the first action where all scores are equal.
        """
        highest = scores.max(axis=1, keepdims=True)
        equal = scores == highest
        if self._rule.stop_at_reward and not self._rule.random_ties:
            best = equal.argmax(axis=1)
        else:
            best = (equal * (1 + self._generator.random(scores.shape))).argmax(axis=1)
        if kept is None:
            return best
        least = highest[:, 0] - self._margin(scores, highest)
        return np.where(scores[np.arange(len(kept)), kept] >= least, kept, best)

    def _margin(self, scores: NDArray[np.float64], highest: NDArray[np.float64]) -> float:
        """Return the largest difference of scores (m, C) that counts as a tie."""
        if self._behavior.components is None:
            return 0.0
        of_behavior = scores[:, _n_of_incumbent(scores.shape[1]) :].mean(axis=1, keepdims=True)
        self._gains += (highest - of_behavior).ravel().tolist()
        return AS_GOOD * float(np.mean(self._gains))


def _n_of_incumbent(candidates: int) -> int:
    """Return how many of a label's candidate vectors are the incumbent's."""
    return int(FROM_INCUMBENT * candidates)
