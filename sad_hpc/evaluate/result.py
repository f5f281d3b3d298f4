"""Results of one (method, seed) on every test task, offline and online."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sad_hpc.evaluate.acting import Selection

MODES = ("offline", "online")
ALL_MODES = (*MODES, "sampled", "lengths")
"""MODES, and two that not every result has.  With `evaluate.acting: auto`, actions of `online`
follow the chosen rule, and those of `sampled` the paper's.  `lengths` is the mean of bandits'
`offline` over context lengths."""
SUBSETS = ("all", "reward_seen")
HIGHER_IS_BETTER = {"return": True, "suboptimality": False, "regret": False}
"""By metric, true if higher values are better."""
Played = tuple[NDArray[np.float32], NDArray[np.int32] | None]
"""Values (n_tasks, K) and context rewards (n_tasks, K); None: not counted."""
EXACT = "exact learner"
"""Name, among references, of the exact learner of a row's own labels (see `evaluate.exact`)."""
BAYES_OPTIMAL = "Bayes-optimal"
"""Name of the Bayes-optimal learner among references; it is followed by `, history` with all
episodes as memory, and by `, episodes` with episodes as offline contexts."""


@dataclass(frozen=True)
class Measure:
    """Meaning of the numbers of a mode."""

    metric: str
    """return, suboptimality or regret."""
    axis: str
    """Unit of the K columns: episode, context length or pull."""
    headline: int
    """Number of last columns whose mean is the number in tables."""


@dataclass(frozen=True)
class ModeResult:
    """The result of one mode, offline or online, of one (method, seed)."""

    measure: Measure
    steps: NDArray[np.int32]
    """(K,): episode, context length or pull of each column, ascending from 1."""
    values: NDArray[np.float32]
    """(n_tasks, K)"""
    context_rewards: NDArray[np.int32] | None
    """(n_tasks, K): number of rewarded transitions in each entry's context; None: not counted."""
    references: dict[str, NDArray[np.float32]]
    """(n_tasks, K) by name: results of reference policies on the same tasks."""
    reference_context_rewards: dict[str, NDArray[np.int32]] = field(default_factory=dict)
    """Context rewards (n_tasks, K), by name, of references with their own contexts."""

    @classmethod
    def of_episodes(
        cls,
        returns: NDArray[np.float32],
        context_rewards: NDArray[np.int32] | None,
        headline: int,
        references: dict[str, NDArray[np.float32]],
    ) -> "ModeResult":
        """Return the result of a mode with one column an episode.

        Args:
            returns: (n_tasks, K).
            context_rewards: (n_tasks, K); None: not counted.
            headline: see `Measure`.
            references: returns by name, (n_tasks, K), or (n_tasks,) if equal in all episodes.
        """
        count = returns.shape[1]
        every = {
            name: own if own.ndim == 2 else own[:, None].repeat(count, axis=1)
            for name, own in references.items()
        }
        steps = np.arange(1, count + 1, dtype=np.int32)
        return cls(Measure("return", "episode", headline), steps, returns, context_rewards, every)

    @classmethod
    def of_chunks(cls, chunks: Sequence["ModeResult"]) -> "ModeResult":
        """Concatenate the results of successive tasks.

        Context rewards are kept if all chunks have them.
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
        self,
        name: str,
        values: NDArray[np.float32],
        context_rewards: NDArray[np.int32] | None = None,
    ) -> "ModeResult":
        """Return the result with another reference (n_tasks, K), perhaps with its own contexts."""
        own = {} if context_rewards is None else {name: context_rewards}
        return replace(
            self,
            references=self.references | {name: values},
            reference_context_rewards=self.reference_context_rewards | own,
        )

    @property
    def headline_mean(self) -> float:
        """The number in tables, for this seed."""
        return float(self.values[:, -self.measure.headline :].mean())

    @property
    def subsets(self) -> tuple[str, ...]:
        """Subsets of entries that the result can distinguish."""
        return SUBSETS[:1] if self.context_rewards is None else SUBSETS

    def mask(self, subset: str, reference: str | None = None) -> NDArray[np.bool_]:
        """Return which entries belong to `subset`, (n_tasks, K).

        Args:
            subset: one of SUBSETS.
            reference: name of a reference, whose own contexts decide if it has any.
        """
        if subset == "all" or self.context_rewards is None:
            return np.ones(self.values.shape, dtype=bool)
        own = self.reference_context_rewards.get(reference) if reference else None
        return (self.context_rewards if own is None else own) > 0


@dataclass(frozen=True)
class Result:
    """The content of the result file of one (method, seed)."""

    path: Path
    row: str
    """Name of the row in tables; the method in the result file itself."""
    seed: int
    task_family: str
    signature: str
    modes: dict[str, ModeResult]
    """Results of MODES, and of those others of ALL_MODES that there are."""
    selection: Selection | None = None
    """Record of the choice of the acting rule; None: the config gives the rule."""
    tasks: dict[str, NDArray[Any]] = field(default_factory=dict)
    """`index` (n,) and `parameters` (n, p) of the test tasks."""
