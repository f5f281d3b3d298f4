"""A series: what one policy reached in one mode on one subset, over its training seeds."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sad_hpc.aggregate.statistics import Statistics, describe, masked_mean
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
    seeds: tuple[int, ...]
    curves: NDArray[np.float64]
    """(seeds, K): means over the tasks in the subset; NaN over no task."""
    headlines: NDArray[np.float64]
    """(seeds, n_tasks): mean over the last entries in the subset; NaN over none."""

    @property
    def statistics(self) -> Statistics:
        """The series' row in the summary."""
        return describe(self.headlines)

    @property
    def empty_seeds(self) -> list[int]:
        """Seeds of which no entry that counts for the headline is in the subset."""
        rows = zip(self.seeds, self.headlines, strict=True)
        return [seed for seed, row in rows if np.isnan(row).all()]


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
    modes = tuple((result.modes[mode].measure, result.modes[mode].values.shape) for mode in MODES)
    return (result.task_family, *modes)


def make_series(results: Sequence[Result], methods: Sequence[str]) -> list[Series]:
    """All series of an experiment: the methods in the given order, then the references.

    A reference is taken once a seed, from the first method that has it: all methods are evaluated
    on the same tasks, and the subset's entries are those of that method.
    """
    made = []
    for method in methods:
        own = [result for result in results if result.method == method]
        made += _over_modes(own, method, None)
    ordered = [result for method in methods for result in results if result.method == method]
    names = [name for r in ordered for mode in r.modes.values() for name in mode.references]
    for name in dict.fromkeys(names):
        made += _over_modes(ordered, name, name)
    return made


def _over_modes(results: list[Result], policy: str, reference: str | None) -> list[Series]:
    """The series of one policy; `reference` is its name if it is no method."""
    candidates = [
        _one_series(results, policy, reference, mode, subset)
        for mode in MODES
        for subset in SUBSETS
    ]
    return [series for series in candidates if series is not None]


def _one_series(
    results: list[Result], policy: str, reference: str | None, mode: str, subset: str
) -> Series | None:
    """One series, or None if no result has the mode's subset or the reference."""
    by_seed: dict[int, tuple[NDArray, NDArray]] = {}
    for result in results:
        part = result.modes[mode]
        values = part.references.get(reference) if reference else part.values
        if values is None or subset not in part.subsets or result.seed in by_seed:
            continue
        mask, last = part.mask(subset), slice(-part.measure.headline, None)
        curve = masked_mean(values, mask, axis=0)
        headline = masked_mean(values[:, last], mask[:, last], axis=1)
        by_seed[result.seed] = (curve, headline)
    if not by_seed:
        return None
    curves, headlines = zip(*by_seed.values(), strict=True)
    return Series(
        policy=policy,
        is_reference=reference is not None,
        mode=mode,
        subset=subset,
        measure=results[0].modes[mode].measure,
        seeds=tuple(by_seed),
        curves=np.stack(curves),
        headlines=np.stack(headlines),
    )
