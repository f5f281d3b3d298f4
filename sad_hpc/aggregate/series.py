"""Series: the values of one row or reference in one mode and subset, over its seeds."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sad_hpc.aggregate.statistics import Statistics, describe, masked_mean, per_seed
from sad_hpc.errors import UserError
from sad_hpc.evaluate.result import ALL_MODES, BAYES_OPTIMAL, MODES, SUBSETS, Measure, Result
from sad_hpc.experiment.methods import METHODS
from sad_hpc.experiment.rows import is_recipe, method_of

LIMITS = ("optimal", "random")
"""References that bound the performance of a row."""


@dataclass(frozen=True)
class Series:
    """The values of one row's models, or of a reference policy on the same tasks."""

    policy: str
    """The name of the row, or of the reference, such as `optimal`."""
    is_reference: bool
    mode: str
    subset: str
    measure: Measure
    steps: NDArray[np.int32]
    """(K,): the episodes, pulls or context lengths of the columns; see `ModeResult`."""
    seeds: tuple[int, ...]
    curves: NDArray[np.float64]
    """(seeds, K): means over the tasks in the subset; NaN if the subset is empty."""
    headlines: NDArray[np.float64]
    """(seeds, n_tasks): mean over the headline columns in the subset; NaN if it is empty."""
    bayes_optimal: float = float("nan")
    """Mean of the Bayes-optimal learner in the row's result files on the same entries; NaN if
    unknown."""

    @property
    def statistics(self) -> Statistics:
        """The series' numbers in the summary."""
        return describe(self.headlines)

    @property
    def empty_seeds(self) -> list[int]:
        """Seeds without any headline entry in the subset."""
        rows = zip(self.seeds, self.headlines, strict=True)
        return [seed for seed, row in rows if np.isnan(row).all()]


def is_learner(name: str) -> bool:
    """Return whether a reference is a Bayes-optimal learner, with any kind of memory."""
    return name == BAYES_OPTIMAL or name.startswith(f"{BAYES_OPTIMAL},")


def row_order(names: Iterable[str]) -> list[str]:
    """Sort rows: the methods first, then rows such as `SAD+`, then all others in their order."""
    methods = list(METHODS)

    def place(name: str) -> int:
        return methods.index(name) if name in METHODS else len(methods) + (not is_recipe(name))

    return sorted(dict.fromkeys(name for name in names if method_of(name)), key=place)


def reference_order(names: Iterable[str]) -> list[str]:
    """Select the references for tables: Bayes-optimal learners, then optimal and random play."""
    shown = dict.fromkeys(names)
    return [*filter(is_learner, shown), *(name for name in LIMITS if name in shown)]


def check_alike(results: Sequence[Result]) -> None:
    """Check that all results have the same task family, metric and shape.

    Raises:
        UserError: two results differ, so a mean over them is meaningless.
    """
    for result in results[1:]:
        if _kind(result) != _kind(results[0]):
            raise UserError(
                f"{result.path} and {results[0].path} differ in task family, metric or shape; "
                "remove the folder of the wrong one and run `sad-hpc evaluate` again"
            )


def _kind(result: Result) -> tuple[Any, ...]:
    modes = [result.modes[mode] for mode in MODES]
    kinds = [(each.measure, each.values.shape, each.steps.tolist()) for each in modes]
    return (result.task_family, *kinds)


def make_series(results: Sequence[Result]) -> list[Series]:
    """Return all series of an experiment: its rows in `row_order`, then the references.

    All rows are evaluated on the same tasks, so a reference is taken once for each seed, from the
    first row that has it.  It has the subset of this row unless it has its own contexts.  A subset
    that is empty for every policy is omitted.
    """
    rows = row_order(result.row for result in results)
    ordered = sorted(results, key=lambda result: rows.index(result.row))
    names = [name for r in ordered for mode in r.modes.values() for name in mode.references]
    policies = [(row, False) for row in rows] + [(name, True) for name in dict.fromkeys(names)]
    candidates = [
        _one_series(ordered, policy, is_reference, mode, subset)
        for policy, is_reference in policies
        for mode in ALL_MODES
        for subset in SUBSETS
    ]
    found = [series for series in candidates if series is not None]
    known = {(one.mode, one.subset) for one in found if not np.isnan(one.headlines).all()}
    return [one for one in found if one.subset == "all" or (one.mode, one.subset) in known]


def _one_series(
    results: list[Result], policy: str, is_reference: bool, mode: str, subset: str
) -> Series | None:
    """Return one series, or None if no result has the policy or the mode's subset."""
    by_seed: dict[int, tuple[NDArray, ...]] = {}
    for result in results:
        part, own = result.modes.get(mode), result.row == policy
        if part is None:
            continue
        values = part.references.get(policy) if is_reference else part.values if own else None
        if values is None or subset not in part.subsets or result.seed in by_seed:
            continue
        mask = part.mask(subset, policy if is_reference else None)
        last = slice(-part.measure.headline, None)
        curve = masked_mean(values, mask, axis=0)
        learners = [each for name, each in part.references.items() if is_learner(name)]
        by_seed[result.seed] = (
            curve,
            *(
                masked_mean(each[:, last], mask[:, last], axis=1)
                for each in (values, learners[0] if learners else np.full(values.shape, np.nan))
            ),
        )
    if not by_seed:
        return None
    curves, headlines, learner = map(np.stack, zip(*by_seed.values(), strict=True))
    known = per_seed(learner)[~np.isnan(per_seed(learner))]
    bayes_optimal = float(known.mean()) if len(known) else float("nan")
    first = next(result.modes[mode] for result in results if mode in result.modes)
    kind = (policy, is_reference, mode, subset, first.measure, first.steps)
    return Series(*kind, tuple(by_seed), curves, headlines, bayes_optimal)
