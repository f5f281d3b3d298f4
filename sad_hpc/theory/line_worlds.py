"""The paper's line worlds: Proposition 1 and the three cases of two rewards, tables and pictures.

Five states in a row, actions left and right; Assumption 2 holds if the random policy's Q has the
same best actions as the optimal one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from sad_hpc.aggregate.origin import portable
from sad_hpc.aggregate.tables import markdown_table
from sad_hpc.storage.files import atomic_path, write_json
from sad_hpc.storage.provenance import provenance
from sad_hpc.theory.bellman import (
    QTables,
    agreement,
    line_world,
    optimal_q,
    policy_q,
)

UNIFORM = np.array([0.5, 0.5])
ACTIONS = ("left", "right")
COMMAND = "sad-hpc theory paper"


@dataclass(frozen=True)
class LineWorld:
    """A world of the paper, and its Q-tables."""

    name: str
    right: float
    """Reward of a step that ends in the last state; in the first it is 1."""
    discount: float

    @property
    def title(self) -> str:
        """Name, rewards and discount."""
        return f"{self.name}: rewards 1 and {self.right:g}, gamma = {self.discount:g}"

    @property
    def rewards(self) -> NDArray[np.float32]:
        """(5, 2)"""
        return line_world(1.0, self.right).rewards[0]

    @cached_property
    def random(self) -> QTables:
        """Q of the uniform policy."""
        return policy_q(line_world(1.0, self.right), UNIFORM, self.discount)

    @cached_property
    def optimal(self) -> QTables:
        """Q of the optimal policy."""
        return optimal_q(line_world(1.0, self.right), self.discount)


PROPOSITION = LineWorld("Proposition 1", 0.0, 0.99)
CASES = (
    LineWorld("case (a)", 0.1, 0.99),
    LineWorld("case (b)", 0.9, 0.8),
    LineWorld("case (c)", 0.9, 0.97),
)


def write_line_worlds(results: Path) -> Path:
    """Makes the folder `theory` of a results folder, and returns it."""
    folder = results / "theory"
    folder.mkdir(parents=True, exist_ok=True)
    _draw_proposition(folder / "q_tables.png")
    _draw_errors(folder / "td_error.png")
    _draw_cases(folder / "two_rewards.png")
    with atomic_path(folder / "README.md") as temporary:
        temporary.write_text(_page(), encoding="utf-8")
    write_json(folder / "provenance.json", portable(provenance()))
    return folder


def _page() -> str:
    worlds = (PROPOSITION, *CASES)
    header = ("world", "best under the random policy", "best of all", "Assumption 2", "iterations")
    rows = [_verdict(world) for world in worlds]
    tables = [f"## {world.title}\n\n{_q_table(world)}" for world in worlds]
    text = (
        "# Assumption 2 in the paper's line worlds\n\n"
        "Five states in a row, s0 to s4; a step to the left end is worth 1, to the right end\n"
        "another reward, and steps against a wall stay. The Bellman equations are iterated from 0\n"
        "until no TD error exceeds 1e-6.\n\n"
    )
    pictures = (
        "![Q-tables of Proposition 1](q_tables.png)\n\n![TD error](td_error.png)\n\n"
        "![Q-tables with two rewards](two_rewards.png)\n\n"
    )
    origin = f"\n\nMade by `{COMMAND}`; versions are in [provenance.json](provenance.json).\n\n"
    others = (
        "## Other files\n\n"
        "- `labels_*.csv`, `labels_*.png`, `steps_*.png` (`sad-hpc theory labels CONFIG`): how\n"
        "  often labels are right against N and N_ep, and how far states are from a goal\n"
        "- `horizon_*.csv` (`sad-hpc theory horizon CONFIG`): rules for N and N_ep, and the one\n"
        "  that random data alone choose\n"
        "\nTheir origin is in `labels_*.json` and `horizon_*.json`.\n"
    )
    page = text + markdown_table(header, rows) + "\n" + pictures + "\n".join(tables)
    return page + origin + others


def _verdict(world: LineWorld) -> list[str]:
    random, optimal = world.random, world.optimal
    ours, best = (_letters(tables) for tables in (random, optimal))
    holds = "fails" if agreement(random, optimal).unequal.any() else "holds"
    return [world.title, ours, best, holds, f"{random.iterations:,}, {optimal.iterations:,}"]


def _letters(tables: QTables) -> str:
    """The best action in each state, such as `left left left right right`."""
    best = tables.best_actions()[0]
    return " ".join("/".join(np.array(ACTIONS)[row]) for row in best)


def _q_table(world: LineWorld) -> str:
    random, optimal = world.random.values[0], world.optimal.values[0]
    header = (
        "state",
        *(f"{name}, {action}" for name in ("random", "optimal") for action in ACTIONS),
    )
    rows = [
        [f"s{state}", *(f"{value:.3f}" for table in (random, optimal) for value in table[state])]
        for state in range(len(random))
    ]
    return markdown_table(header, rows)


def _draw_proposition(path: Path) -> None:
    figure = Figure(figsize=(12, 3.6), layout="constrained")
    rewards, initial, *tables = figure.subplots(1, 4)
    figure.suptitle(PROPOSITION.title)
    _draw_table(rewards, "rewards", PROPOSITION.rewards, None)
    _draw_table(initial, "Q, initial", np.zeros_like(PROPOSITION.rewards), None)
    _draw_world(tables, PROPOSITION)
    _save(path, figure)


def _draw_cases(path: Path) -> None:
    figure = Figure(figsize=(7, 10), layout="constrained")
    for row, world in zip(figure.subplots(len(CASES), 2), CASES, strict=True):
        _draw_world(row, world)
        row[0].set_title(f"{world.title}\n{row[0].get_title()}", fontsize=10)
    _save(path, figure)


def _draw_world(panels: Sequence[Axes], world: LineWorld) -> None:
    """Both Q-tables of a world."""
    for axes, name, tables in zip(
        panels, ("Q, uniform policy", "Q, optimal"), (world.random, world.optimal), strict=True
    ):
        _draw_table(axes, name, tables.values[0], tables.best_actions()[0])


def _draw_table(
    axes: Axes, title: str, values: NDArray[np.floating], stars: NDArray[np.bool_] | None
) -> None:
    """(5, 2) numbers on a coloured grid; a star marks the best actions."""
    axes.imshow(values, cmap="Blues", aspect="auto", vmax=values.max() * 1.6)
    for (state, action), value in np.ndenumerate(values):
        star = " ★" if stars is not None and stars[state, action] else ""
        axes.text(action, state, f"{value:.4g}{star}", ha="center", va="center")
    axes.set_xticks(range(2), ACTIONS)
    axes.set_yticks(range(len(values)), [f"s{state}" for state in range(len(values))])
    axes.set_title(title, fontsize=10)


def _draw_errors(path: Path) -> None:
    figure = Figure(figsize=(5.5, 3.6), layout="constrained")
    axes = figure.subplots()
    for name, tables in (
        ("uniform policy", PROPOSITION.random),
        ("optimal", PROPOSITION.optimal),
    ):
        axes.semilogy(
            np.arange(1, tables.iterations + 1),
            tables.errors,
            label=f"{name}: {tables.iterations:,} iterations",
        )
    axes.set_xlabel("iteration")
    axes.set_ylabel("largest TD error")
    axes.set_title(PROPOSITION.title, fontsize=10)
    axes.legend(frameon=False)
    _save(path, figure)


def _save(path: Path, figure: Figure) -> None:
    with atomic_path(path) as temporary:
        figure.savefig(temporary, format="png", dpi=150)
