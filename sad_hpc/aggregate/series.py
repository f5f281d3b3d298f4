"""A series: what one policy reached in one mode on one subset, over its training seeds."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sad_hpc.aggregate.statistics import Statistics, describe, masked_mean, per_seed
from sad_hpc.errors import SadError
from sad_hpc.evaluate.result import MODES, SUBSETS, Measure, Result


@dataclass(frozen=True)
class Series:
    """One policy: a method's trained models, or a reference policy on the same tasks."""

    policy: str
    """The method or the reference policy, such as `optimal`."""
    is_reference: bool
    mode: str
    subset: str
    measure: Measure
    steps: NDArray[np.int32]
    """(K,): what the columns of `curves` count, see `ModeResult`."""
    seeds: tuple[int, ...]
    curves: NDArray[np.float64]
    """(seeds, K): means over the tasks in the subset; NaN over no task."""
    headlines: NDArray[np.float64]
    """(seeds, n_tasks): mean over the last entries in the subset; NaN over none."""
    ideal: float = float("nan")
    """What the ideal learner that stands in the policy's own result files reaches on the same
    entries; NaN where none is known."""

    @property
    def statistics(self) -> Statistics:
        """The series' row in the summary."""
        return describe(self.headlines)

    @property
    def empty_seeds(self) -> list[int]:
        """Seeds of which no entry that counts for the headline is in the subset."""
        rows = zip(self.seeds, self.headlines, strict=True)
        return [seed for seed, row in rows if np.isnan(row).all()]


def is_ideal(name: str) -> bool:
    """Whether a reference policy is an ideal learner: `ideal`, or `ideal, history`."""
    return name == "ideal" or name.startswith("ideal,")


def check_alike(results: list[Result]) -> None:
    """Checks that all results measure the same thing on as many tasks.

    Raises:
        SadError: two of them differ, so no mean over them has a meaning.
    """
    for result in results[1:]:
        if _kind(result) != _kind(results[0]):
            raise SadError(
                f"{result.path} and {results[0].path} differ in task family, metric or shape; "
                "remove the folder of the wrong one and run `sad-hpc evaluate` again"
            )


def _kind(result: Result) -> tuple[Any, ...]:
    modes = [result.modes[mode] for mode in MODES]
    kinds = [(each.measure, each.values.shape, each.steps.tolist()) for each in modes]
    return (result.task_family, *kinds)


def make_series(results: Sequence[Result], methods: Sequence[str]) -> list[Series]:
    """All series of an experiment: the methods in the given order, then the references.

    A reference is taken once a seed, from the first method that has it: all methods are evaluated
    on the same tasks, and the subset's entries are those of that method.  A subset that is empty
    for all of them, such as contexts with a reward where all rewards are negative, is left out.
    """
    ordered = sorted(results, key=lambda result: list(methods).index(result.method))
    names = [name for r in ordered for mode in r.modes.values() for name in mode.references]
    policies = [(method, False) for method in methods]
    policies += [(name, True) for name in dict.fromkeys(names)]
    candidates = [
        _one_series(ordered, policy, is_reference, mode, subset)
        for policy, is_reference in policies
        for mode in MODES
        for subset in SUBSETS
    ]
    found = [series for series in candidates if series is not None]
    known = {(one.mode, one.subset) for one in found if not np.isnan(one.headlines).all()}
    return [one for one in found if one.subset == "all" or (one.mode, one.subset) in known]


def _one_series(
    results: list[Result], policy: str, is_reference: bool, mode: str, subset: str
) -> Series | None:
    """One series, or None if no result has the policy or the mode's subset."""
    by_seed: dict[int, tuple[NDArray, ...]] = {}
    for result in results:
        part, own = result.modes[mode], result.method == policy
        values = part.references.get(policy) if is_reference else part.values if own else None
        if values is None or subset not in part.subsets or result.seed in by_seed:
            continue
        mask = part.mask(subset, policy if is_reference else None)
        last = slice(-part.measure.headline, None)
        curve = masked_mean(values, mask, axis=0)
        learners = [each for name, each in part.references.items() if is_ideal(name)]
        by_seed[result.seed] = (
            curve,
            *(
                masked_mean(each[:, last], mask[:, last], axis=1)
                for each in (values, learners[0] if learners else np.full(values.shape, np.nan))
            ),
        )
    if not by_seed:
        return None
    curves, headlines, ideals = map(np.stack, zip(*by_seed.values(), strict=True))
    known = per_seed(ideals)[~np.isnan(per_seed(ideals))]
    ideal = float(known.mean()) if len(known) else float("nan")
    first = results[0].modes[mode]
    kind = (policy, is_reference, mode, subset, first.measure, first.steps)
    return Series(*kind, tuple(by_seed), curves, headlines, ideal)
