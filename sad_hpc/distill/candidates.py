"""Candidates of a label in simulators: the first actions that are tried, and the choice among them.

Discrete actions are all tried.  Vectors are drawn: by the behavior policy, and from the second
round on half of them by the incumbent, since few uniform draws are better than a good vector.
With `data.refinements` they are drawn again around the best ones: the cross-entropy method
(Rubinstein, Methodology and Computing in Applied Probability, 1999).
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sad_hpc.distill.labels import LabelRule
from sad_hpc.distill.rollout import Behavior, Followings

FROM_INCUMBENT = 0.5
"""Share of the incumbent, if there is one, in candidate vectors."""

ELITE = 0.25
"""Share of the candidates that a refinement draws around."""

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
        generator: random numbers of ties and of refinements.
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

    def chosen(
        self,
        drawn: NDArray[Any],
        observations: NDArray[Any],
        tasks: NDArray[np.int64],
        score: Callable[[NDArray[Any]], NDArray[np.float64]],
    ) -> tuple[NDArray[np.float64], NDArray[Any]]:
        """Return the best scores (m,) and the labels, (m,) or (m, a), of query states.

        The label of refined candidates is the mean of the best ones.

        Args:
            drawn: candidates of the behavior policy, (m, C) or (m, C, a).
            observations: (m, ...) of the query states.
            tasks: (m,) of the query states.
            score: function from candidates to their scores (m, C).
        """
        tried, kept = self._with_incumbent(drawn, observations, tasks)
        scores = score(tried)
        if kept is not None and self._behavior.components is not None:
            uniform = scores[:, _n_of_incumbent(scores.shape[1]) :]
            self._gains += (scores.max(axis=1) - uniform.mean(axis=1)).tolist()
        for _ in range(self._rule.refinements):
            tried = self._refined(tried, scores)
            scores = score(tried)
        best, rows = self.best(scores, kept), np.arange(len(scores))
        labels = tried[rows, best]
        if self._rule.refinements:
            mean = _elite(tried, scores).mean(axis=1)
            labels = mean if kept is None else np.where((best == kept)[:, None], labels, mean)
        return scores.max(axis=1), labels

    def _with_incumbent(
        self, drawn: NDArray[Any], observations: NDArray[Any], tasks: NDArray[np.int64]
    ) -> tuple[NDArray[Any], NDArray[np.int64] | None]:
        """Return the candidates to try, and the numbers (m,) of the incumbent's actions among them.

        The first vectors are replaced by the incumbent's likeliest one and draws at temperature 1.
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

    def _refined(
        self, candidates: NDArray[Any], scores: NDArray[np.float64]
    ) -> NDArray[np.float32]:
        """Return vectors (m, C, a) drawn around the best of `candidates` (m, C, a).

        The incumbent's likeliest vector stays the first.
        """
        elite = _elite(candidates, scores)
        # A few vectors are closer to one another than to the optimum.
        spread = 1.2 * elite.std(axis=1, keepdims=True) + 0.05
        middle = elite.mean(axis=1, keepdims=True)
        drawn = self._generator.normal(middle, spread, candidates.shape).clip(-1, 1)
        if self._following is not None:
            drawn[:, 0] = candidates[:, 0]
        return drawn.astype(np.float32)

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
        # Discrete actions have no gains, and exact ties.
        least = highest[:, 0] - (AS_GOOD * float(np.mean(self._gains)) if self._gains else 0.0)
        return np.where(scores[np.arange(len(kept)), kept] >= least, kept, best)


def _n_of_incumbent(candidates: int) -> int:
    """Return how many of a label's candidate vectors are the incumbent's."""
    return int(FROM_INCUMBENT * candidates)


def _elite(candidates: NDArray[Any], scores: NDArray[np.float64]) -> NDArray[Any]:
    """Return the best vectors (m, E, a) of candidates (m, C, a)."""
    count = max(2, int(ELITE * scores.shape[1]))
    order = np.argsort(-scores, axis=1, kind="stable")[:, :count]
    return np.take_along_axis(candidates, order[..., None], axis=1)
