"""What one (method, seed) has reached on every test task, offline and online."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

MODES = ("offline", "online")
SUBSETS = ("all", "reward_seen")
HIGHER_IS_BETTER = {"return": True, "suboptimality": False, "regret": False}
"""By metric."""
BAYES_OPTIMAL = "Bayes-optimal"
"""The reference that answers by the exact posterior; `, history` or `, episodes` follows its name
where it has another memory or other contexts."""


@dataclass(frozen=True)
class Measure:
    """What the numbers of a mode mean."""

    metric: str
    """return, suboptimality or regret."""
    axis: str
    """What the K columns count: episode, context length or pull."""
    headline: int
    """The number in the tables is the mean over the last so many columns."""


@dataclass(frozen=True)
class ModeResult:
    """One mode, offline or online, of one element."""

    measure: Measure
    steps: NDArray[np.int32]
    """(K,): which episode, context length or pull each column is of, from 1 and rising."""
    values: NDArray[np.float32]
    """(n_tasks, K)"""
    context_rewards: NDArray[np.int32] | None
    """(n_tasks, K): rewarded transitions in the context of each entry, where they were counted."""
    references: dict[str, NDArray[np.float32]]
    """(n_tasks, K) by name: what other policies reach on the same tasks."""
    reference_context_rewards: dict[str, NDArray[np.int32]] = field(default_factory=dict)
    """As `context_rewards`, of the references that have contexts of their own."""

    @classmethod
    def of_chunks(cls, chunks: Sequence["ModeResult"]) -> "ModeResult":
        """The results of successive tasks as one.

        Rewards in contexts are known if all chunks have counted them, which an earlier version did
        not in simulated tasks.
        """
        first = chunks[0]
        counted = [each.context_rewards for each in chunks if each.context_rewards is not None]
        return cls(
            first.measure,
            first.steps,
            np.concatenate([each.values for each in chunks]),
            np.concatenate(counted) if len(counted) == len(chunks) else None,
            {
                name: np.concatenate([each.references[name] for each in chunks])
                for name in first.references
            },
            {
                name: np.concatenate([each.reference_context_rewards[name] for each in chunks])
                for name in first.reference_context_rewards
            },
        )

    def with_reference(
        self, name: str, values: NDArray[np.float32], context_rewards: NDArray[np.int32]
    ) -> "ModeResult":
        """The result with one more reference (n_tasks, K), which has contexts of its own."""
        return replace(
            self,
            references=self.references | {name: values},
            reference_context_rewards=self.reference_context_rewards | {name: context_rewards},
        )

    @property
    def headline_mean(self) -> float:
        """The number in the tables, for this one seed."""
        return float(self.values[:, -self.measure.headline :].mean())

    @property
    def subsets(self) -> tuple[str, ...]:
        """The subsets that can be told apart."""
        return SUBSETS[:1] if self.context_rewards is None else SUBSETS

    def mask(self, subset: str, reference: str | None = None) -> NDArray[np.bool_]:
        """Return which entries belong to `subset`, by the contexts of a reference if it has its
        own, (n_tasks, K).
        """
        if subset == "all" or self.context_rewards is None:
            return np.ones(self.values.shape, dtype=bool)
        own = self.reference_context_rewards.get(reference) if reference else None
        return (self.context_rewards if own is None else own) > 0


@dataclass(frozen=True)
class Result:
    """One element's result file."""

    path: Path
    row: str
    """The row's name in tables; in an element's own file the method."""
    seed: int
    task_family: str
    signature: str
    modes: dict[str, ModeResult]
