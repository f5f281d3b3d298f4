"""Figures of label accuracy against N and N_ep, and of the steps from states to a goal.

As in the paper, the accuracy is over query states with a label.  A second panel shows the share of
query states with a label, which is small for short trust horizons.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import shortest_path

from sad_hpc.aggregate.canvas import drawing, verbatim
from sad_hpc.aggregate.comparison import family_name
from sad_hpc.experiment.experiment import Experiment
from sad_hpc.tasks.bandit import BanditFamily
from sad_hpc.tasks.base import SPLITS, TaskFamily, make_family
from sad_hpc.tasks.mdps import TabularMDPs
from sad_hpc.tasks.tabular import TabularFamily
from sad_hpc.theory.repeats import repeat_labels
from sad_hpc.theory.table import write_table

QUERY_STATES = 20_000
HORIZONS = 12
"""Number of values of N, from 1 to T; for bandits from 5 to 4 T."""
EPISODES = (1, 16, 256)
"""Values of N_ep for episodic tasks."""
STYLES = {"mean": "-", "fastest": "--"}
PANELS = {
    "right": "label accuracy",
    "labelled": "share of query states with a label",
    "consensus": "consensus of two labels",
}


def write_labels(experiment: Experiment[Any], results: Path) -> Path:
    """Write `theory/labels_<experiment>.{csv,png}` in a results folder, with provenance as `.json`.

    For rooms with goals, also write `steps_<experiment>.png`.

    Returns:
        the path of the first figure.
    """
    family, table = make_family(experiment.task), label_curves(experiment)
    path = write_table(results, f"labels_{experiment.name}", table).with_suffix(".png")
    _draw_curves(path, family, table)
    if goals := _goals(family):
        _draw_rooms(path.with_name(f"steps_{experiment.name}.png"), family, goals)
    return path


def label_curves(experiment: Experiment[Any]) -> pd.DataFrame:
    """Tabulate rules: score, N, N_ep, the shares of PANELS, and the transitions of a label."""
    family = make_family(experiment.task)
    bandit = isinstance(family, BanditFamily)
    first, last = (5, 4 * family.config.horizon) if bandit else (1, family.config.horizon)
    horizons = np.unique(np.geomspace(first, last, HORIZONS).round().astype(int)).tolist()
    rows = []
    for score, episodes in _rules(family):
        for horizon in horizons:
            rule = {"trust_horizon": horizon, "episodes_per_action": episodes, "score": score}
            one = repeat_labels(family, experiment.data.model_copy(update=rule), QUERY_STATES)
            right = one.right(family) / one.coverage if one.coverage else np.nan
            shares = (right, one.coverage, one.consensus, one.transitions)
            rows.append((score, horizon, episodes, *shares))
    return pd.DataFrame(rows, columns=["score", "N", "N_ep", *PANELS, "transitions"])


def _rules(family: TaskFamily) -> list[tuple[str, int]]:
    """Return the pairs of score and N_ep to compare; with N_ep = 1 the two scores are equal."""
    if isinstance(family, BanditFamily):
        return [("mean", 1)]
    rules = [("mean", episodes) for episodes in EPISODES]
    if family.sparse_reward and family.certain:
        rules += [("fastest", episodes) for episodes in EPISODES[1:]]
    return rules


def steps_to_go(family: TabularFamily, parameters: NDArray[Any]) -> NDArray[np.float64]:
    """Return the least number of steps from each state to a rewarded state of one task, (S,)."""
    mdps = family.mdps(parameters[None])
    assert isinstance(mdps, TabularMDPs)
    following, paid = mdps.next_states[0].astype(np.int64), mdps.rewards[0] > 0
    states = np.arange(len(following)).repeat(following.shape[1])
    edges = csr_array((np.ones(following.size), (states, following.reshape(-1))))
    distances = shortest_path(edges, unweighted=True)
    return distances[:, np.unique(following[paid])].min(axis=1)


def _draw_curves(path: Path, family: TaskFamily, table: pd.DataFrame) -> None:
    with drawing(path, (4.4 * len(PANELS), 4.0)) as figure:
        figure.suptitle(verbatim(f"{family_name(family.name)}: labels by trust horizon"))
        for axes, column in zip(figure.subplots(1, len(PANELS)), PANELS, strict=True):
            _draw_shares(axes, table, column)


def _draw_shares(axes: Axes, table: pd.DataFrame, column: str) -> None:
    for (score, episodes), rows in table.groupby(["score", "N_ep"], sort=False):
        color = f"C{EPISODES.index(episodes)}"
        label = f"{score}, N_ep = {episodes}"
        axes.plot(rows["N"], rows[column], STYLES[score], c=color, marker="o", ms=4, label=label)
    axes.set_xscale("log")
    axes.set_ylim(-0.02, 1.02)
    axes.set_xlabel("trust horizon N")
    axes.set_ylabel(PANELS[column])
    axes.spines[["top", "right"]].set_visible(False)
    if table["N_ep"].nunique() > 1:
        axes.legend(frameon=False, fontsize=9)


def _goals(family: TaskFamily) -> list[NDArray[Any]]:
    """Return the corner opposite the start and the middle, if the family's tasks are goals."""
    if not isinstance(family, TabularFamily) or family.coordinates.shape[1] != 2:
        return []
    last = family.coordinates.max(axis=0).astype(np.int16)
    known = {tuple(task) for split in SPLITS for task in family.distinct_tasks(split)}
    return [goal for goal in (last, last // 2) if tuple(goal) in known]


def _draw_rooms(path: Path, family: TaskFamily, goals: list[NDArray[Any]]) -> None:
    """Draw the least number of steps from every cell to each goal."""
    with drawing(path, (4.0 * len(goals), 4.0)) as figure:
        for axes, goal in zip(figure.subplots(1, len(goals), squeeze=False)[0], goals, strict=True):
            assert isinstance(family, TabularFamily)
            _draw_steps(axes, family, goal)


def _draw_steps(axes: Axes, family: TabularFamily, goal: NDArray[Any]) -> None:
    steps = np.full(family.coordinates.max(axis=0) + 1, np.nan)
    steps[tuple(family.coordinates.T)] = steps_to_go(family, goal)
    axes.imshow(steps.T, origin="lower", cmap="Blues_r")
    for (x, y), value in np.ndenumerate(steps):
        color = "white" if value < np.nanmax(steps) / 2 else "black"
        text = "★" if value == 0 else f"{value:.0f}"
        axes.text(x, y, text, ha="center", va="center", color=color)
    axes.set_title(f"steps to the goal at ({', '.join(map(str, goal))})", fontsize=10)
    axes.set_xticks([])
    axes.set_yticks([])
