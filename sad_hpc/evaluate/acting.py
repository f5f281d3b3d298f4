"""Choice of actions from logits: greedy, sampled, and the rules of online agents.

The paper samples online actions from the softmax at temperature 1.  With `evaluate.acting: auto`
every trained model gets a rule of a grid (see `evaluate.selection`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Read = Callable[[NDArray[np.float32]], NDArray[Any]]
"""A function from logits (n, A) to actions (n,), or to numbers (n,) of a component."""

Answer = Callable[[NDArray[np.float32] | None], NDArray[np.float32]]
"""Map the first j components of vectors (n, j) to the logits (n, A) of the next one; None to those
of actions that are numbers."""

TEMPERATURES = (1.0, 0.7, 0.5, 0.35, 0.25, 0.1, 0.05, 0.02, 0.0)
"""The grid of `auto`; 0 is greedy."""


@dataclass(frozen=True)
class ActingRule:
    """A rule for online actions."""

    temperature: float = 1.0
    """Divisor of the logits; 0: greedy."""
    greedy_after_reward: bool = False
    """True if the agent is greedy once its context contains a reward."""
    mean: bool = False
    """True if each component of a vector is the mean of its bins, instead of a sample."""

    def applied(self, logits: NDArray[np.float32], rewarded: NDArray[np.bool_]) -> NDArray:
        """Return logits whose softmax has the rule's probabilities of actions.

        Args:
            logits: (n, ..., A).
            rewarded: (n,), whether a context contains a reward.
        """
        certain = np.full(len(logits), self.temperature == 0)
        if self.greedy_after_reward:
            certain |= rewarded
        if self.temperature not in (0, 1):
            logits = logits / np.float32(self.temperature)
        return settled(logits, certain) if certain.any() else logits


PAPER = ActingRule()
"""The rule of Algorithm 6."""


def grid(sparse_reward: bool, vectors: bool) -> list[ActingRule]:
    """Return the rules that `auto` compares in a family.

    Args:
        sparse_reward: whether its rewards are sparse.
        vectors: whether its actions are vectors.
    """
    sharp = [temperature for temperature in TEMPERATURES if temperature]
    rules = [ActingRule(temperature) for temperature in TEMPERATURES]
    if vectors:
        rules += [ActingRule(temperature, mean=True) for temperature in sharp]
    if sparse_reward:
        rules += [ActingRule(temperature, True) for temperature in sharp]
    return rules


@dataclass(frozen=True)
class Selection:
    """A comparison of acting rules."""

    rules: list[ActingRule]
    scores: list[float]
    """Headline of each rule."""
    chosen: int
    """Number of the chosen rule."""
    errors: list[float] | None = field(default=None, repr=False)
    """Standard error over tasks of each rule's difference from the best score; None: not known."""

    @classmethod
    def of_values(
        cls,
        rules: Sequence[ActingRule],
        values: NDArray[Any],
        parameters: NDArray[Any],
        higher_is_better: bool,
    ) -> "Selection":
        """Choose the highest temperature whose score is within one standard error of the best.

        Training goals are easily found at a low temperature, since the model knows them; new goals
        are not.  So a difference that may be chance must not lower the temperature.  A task that is
        played several times counts once in a standard error.

        Args:
            rules: R rules.
            values: (R, n), the headline of each rule in each task.
            parameters: (n, p) of the tasks, which may repeat; p = 0: all tasks differ.
            higher_is_better: false for losses.
        """
        sign = 1 if higher_is_better else -1
        scores = values.mean(axis=1, dtype=np.float64)
        best = int((sign * scores).argmax())
        errors = _errors_of_means(values - values[best], parameters)
        # If one task alone differs, both sides are equal up to rounding.
        is_worse = abs(scores[best] - scores) > errors * (1 + 1e-6)
        close = np.flatnonzero(~is_worse).tolist()
        chosen = max(close, key=lambda rule: (rules[rule].temperature, sign * scores[rule]))
        return cls(list(rules), scores.tolist(), chosen, errors.tolist())

    @property
    def rule(self) -> ActingRule:
        """The chosen rule."""
        return self.rules[self.chosen]


def _errors_of_means(differences: NDArray[Any], parameters: NDArray[Any]) -> NDArray[np.float64]:
    """Return the standard errors (R,) of the means of (R, n), whose tasks (n, p) may repeat.

    They are those of the weighted mean of the tasks' own means.  A task that is the only one is
    taken for n tasks.
    """
    n_rules, n_plays = differences.shape
    task = np.unique(parameters, axis=0, return_inverse=True)[1].reshape(-1)
    if not parameters.shape[1] or not task.any():
        task = np.arange(n_plays)
    n_tasks = task.max() + 1
    off = differences.astype(np.float64) - differences.mean(axis=1, keepdims=True)
    sums = np.zeros((n_rules, n_tasks))
    np.add.at(sums.T, task, off.T)
    return np.sqrt((sums**2).sum(axis=1) * n_tasks / max(n_tasks - 1, 1)) / n_plays


def in_turn(answer: Answer, read: Read, components: int | None, count: int) -> NDArray[Any]:
    """Choose n actions (n,), or the components of n vectors (n, a) one after the other.

    Args:
        answer: the model.
        read: function that chooses.
        components: a; None: actions are numbers.
        count: n.
    """
    if components is None:
        return read(answer(None))
    actions = np.empty((count, components), np.float32)
    for component in range(components):
        actions[:, component] = read(answer(actions[:, :component]))
    return actions


def greedy(logits: NDArray[np.float32]) -> NDArray[np.int64]:
    """Return the most likely actions (...) of logits (..., A)."""
    return logits.argmax(axis=-1)


def settled(logits: NDArray[np.float32], known: NDArray[np.bool_]) -> NDArray[np.float32]:
    """Make rows of logits (n, ..., A) greedy: set all but the most likely action to -inf.

    Args:
        logits: (n, ..., A).
        known: (n,), the rows to change.
    """
    unlikely = np.arange(logits.shape[-1]) != greedy(logits)[..., None]
    rows = known.reshape(-1, *(1,) * (logits.ndim - 1))
    return np.where(rows & unlikely, np.float32(-np.inf), logits)


def sampled(logits: NDArray[np.float32], uniforms: NDArray[np.float64]) -> NDArray[np.int64]:
    """Sample actions (n,) from the softmax of logits (n, A), by uniform numbers (n,) in [0, 1)."""
    weights = np.exp(logits.astype(np.float64) - logits.max(axis=-1, keepdims=True))
    cumulative = weights.cumsum(axis=-1)
    below = cumulative <= uniforms[:, None] * cumulative[:, -1:]
    return below.sum(axis=-1)
