"""Verdicts: for each row one line that says how far its training came, and what would bring more.

The evidence is the online headline number on the test tasks, and the held-out loss on training
tasks epoch by epoch.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from sad_hpc.aggregate.comparison import NOTHING
from sad_hpc.aggregate.results_folder import ResultsFolder
from sad_hpc.aggregate.series import Series, of_seeds, t_interval
from sad_hpc.aggregate.summary import number
from sad_hpc.aggregate.training import Training, trainings_of
from sad_hpc.evaluate.result import BAYES_OPTIMAL, HIGHER_IS_BETTER
from sad_hpc.experiment.methods import METHODS

RISE = 0.01
"""Above this rise of the held-out loss over its minimum, as a share of it, the model memorizes."""
FALL = 0.005
"""Above this fall of the held-out loss in the last fifth of the epochs, as a share of it, the
training is too short."""
FEW_STEPS = 1000
"""A training below this number of steps may end before the model reads its context."""
AS_GOOD = 0.98
"""From this share of the way from random play to the Bayes-optimal learner on, both are equal."""
BETTER = 1.02
"""From this share on, a row is better, since the Bayes-optimal learner does not explore by plan."""
RANDOM = "random"


@dataclass(frozen=True)
class Curve:
    """The held-out loss of a row's trainings, their mean over seeds."""

    epochs: int
    lowest: int
    """The epoch of the least loss, from 1."""
    rise: float
    """Rise from there to the end, as a share of the least loss."""
    fall: float
    """Fall in the last fifth of the epochs, as a share of the loss before it; 0 below 5 epochs."""
    steps: float
    """Optimizer steps of the training; NaN if unknown."""


def verdicts(one: ResultsFolder) -> list[str]:
    """Return one line for each row of an experiment; none if random play is not known.

    Raises:
        UserError: see `ResultsFolder`.
    """
    online = {
        each.policy: each for each in one.series if each.mode == "online" and each.subset == "all"
    }
    if RANDOM not in online:
        return []
    curves = {each.row: curve_of(each) for each in trainings_of(one.results)}
    rows = {row: facts for row, facts in one.results.rows.items() if row in online}
    width = max(map(len, rows), default=0)
    trained = one.results.config.get("pretrained") or one.results.config
    data = {f"data.{key}": value for key, value in trained["data"].items()}
    return [
        f"{row:<{width}}  "
        f"{verdict(online, row, facts.method, {**data, **facts.settings}, curves.get(row))}"
        for row, facts in rows.items()
    ]


def curve_of(training: Training) -> Curve:
    """Return what the verdict needs of a row's training curves."""
    loss = training.curves["holdout_loss"].mean(axis=0)
    lowest, before = int(loss.argmin()), loss[math.ceil(0.8 * len(loss)) - 1]
    return Curve(
        epochs=len(loss),
        lowest=lowest + 1,
        rise=float(loss[-1] / loss[lowest] - 1) if loss[lowest] > 0 else 0.0,
        fall=float(1 - loss[-1] / before) if before > 0 else 0.0,
        steps=float(training.steps[-1]),
    )


def verdict(
    online: Mapping[str, Series],
    row: str,
    method: str,
    settings: Mapping[str, object],
    curve: Curve | None,
) -> str:
    """Return the verdict on one row.

    Args:
        online: the online series of all rows and references of the experiment.
        row: the row's name.
        method: its method.
        settings: its settings of `data`, by dotted key.
        curve: its held-out loss, if it is known.
    """
    own = online[row]
    online = {name: of_seeds(each, own.seeds) for name, each in online.items()}
    chance, limit = online[RANDOM], online.get(BAYES_OPTIMAL)
    metric = own.measure.metric
    told, random_play = _number(own), f"random play ({_number(chance)})"
    gained, n_seeds = _gain(own, chance), len(list(_gains(own, chance)))
    if limit is not None and _gain(limit, chance) == 0:
        limit = None  # there is nothing to gain
    share = gained / _gain(limit, chance) if limit is not None else math.nan
    sure = is_better(own, chance)
    if share < NOTHING or not (sure or (n_seeds > 1 and gained > 0)):
        reached = f"online {metric} {told}, not better than {random_play}"
        better = ("data.q_learning_steps", "data.imported_contexts")
        if METHODS[method].imitates and not any(map(settings.get, better)):
            return f"{reached}, which its labels imitate"
        return f"{reached}; {_advice(curve) or _why_nothing(curve)}"
    reached = f"online {metric} {told}, better than {random_play}"
    if not sure:
        reached = f"{reached}, but not significantly over {n_seeds} seeds"
        return "; ".join(filter(None, [reached, _advice(curve)]))
    if limit is not None and share >= BETTER:
        return f"online {metric} {told}, better than the Bayes-optimal learner ({_number(limit)})"
    if share >= AS_GOOD:
        return f"online {metric} {told}, as good as the Bayes-optimal learner"
    if limit is not None:
        way = f"{100 * share:.0f} % of the way from random play to the Bayes-optimal learner"
        reached = f"online {metric} {told}, {way}"
    return "; ".join(filter(None, [reached, _advice(curve)]))


def _number(one: Series) -> str:
    return number(one.measure.metric, one.statistics.mean)


def _advice(curve: Curve | None) -> str:
    """Return what the held-out loss says about the training; empty if it says nothing."""
    if curve is None:
        return ""
    if curve.rise > RISE:
        return (
            f"the held-out loss was least in epoch {curve.lowest} of {curve.epochs} and has risen "
            f"by {100 * curve.rise:.1f} %: more data.tasks or data.queries_per_task, or fewer "
            "pretrain.epochs"
        )
    if curve.fall > FALL:
        return (
            f"the held-out loss fell by {100 * curve.fall:.1f} % in the last fifth: more "
            "pretrain.epochs"
        )
    return ""


def _why_nothing(curve: Curve | None) -> str:
    """Return why a training may have learned nothing although its held-out loss is flat."""
    if curve is not None and curve.steps < FEW_STEPS:
        return f"{curve.steps:,.0f} steps may be too few: more pretrain.epochs or data.tasks"
    return (
        "its labels may say too little: try another data.trust_horizon or more "
        "data.episodes_per_action"
    )


def is_better(one: Series, other: Series) -> bool:
    """Return whether a series is better than another, at 95 %.

    With several seeds the unit is the seed (a t interval), with one seed the test task (two
    standard errors).
    """
    gains = list(_gains(one, other))
    if len(gains) > 1:
        return t_interval(np.array([np.nanmean(each) for each in gains]))[0] > 0
    tasks = np.concatenate(gains)
    tasks = tasks[~np.isnan(tasks)]
    if len(tasks) < 2:
        return bool(tasks.sum() > 0)
    return bool(tasks.mean() > 2 * tasks.std(ddof=1) / math.sqrt(len(tasks)))


def _gain(one: Series, other: Series) -> float:
    return float(np.nanmean(np.concatenate(list(_gains(one, other)))))


def _gains(one: Series, other: Series) -> Iterator[np.ndarray]:
    """Yield for each common seed the (n_tasks,) gains of a series over another."""
    sign = 1 if HIGHER_IS_BETTER[one.measure.metric] else -1
    for seed, own in zip(one.seeds, one.headlines, strict=True):
        if seed in other.seeds:
            yield sign * (own - other.headlines[other.seeds.index(seed)])
