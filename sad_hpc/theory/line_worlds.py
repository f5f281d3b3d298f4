"""The paper's line worlds: Proposition 1 and the three cases of two rewards, as tables and figures.

A world has five states in a row and the actions left and right.  Assumption 2 holds if the random
policy's Q has the same best actions as the optimal Q.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from sad_hpc.aggregate.canvas import drawing
from sad_hpc.aggregate.formats import markdown_table
from sad_hpc.storage.files import atomic_path
from sad_hpc.storage.json_files import write_json
from sad_hpc.storage.provenance import portable, provenance
from sad_hpc.tasks.mdps import TabularMDPs
from sad_hpc.tasks.q_tables import QTables, agreement, optimal_q, policy_q

UNIFORM = np.array([0.5, 0.5])
ACTIONS = ("left", "right")
PAGE = """# Assumption 2 in the paper's line worlds

Five states in a row, s0 to s4; a step to the left end is worth 1, to the right end
another reward, and steps against a wall stay. The Bellman equations are iterated from 0
until no TD error exceeds 1e-6.

{verdicts}
![Q-tables of Proposition 1](q_tables.png)

![TD error](td_error.png)

![Q-tables with two rewards](two_rewards.png)

{tables}
Made by `sad-hpc theory paper`; versions are in [provenance.json](provenance.json).

## Other files

- `labels_*.csv`, `labels_*.png`, `steps_*.png` (`sad-hpc theory labels CONFIG`): how
  often labels are right against N and N_ep, and how far states are from a goal
- `horizon_*.csv` (`sad-hpc theory horizon CONFIG`): rules for N and N_ep, and the one
  that random data alone choose

Their origin is in `labels_*.json` and `horizon_*.json`.
"""


@dataclass(frozen=True)
class LineWorld:
    """A line world of the paper, and its Q-tables."""

    name: str
    right: float
    """Reward of a step that ends in the last state; that of the first state is 1."""
    discount: float

    @property
    def title(self) -> str:
        """Name, rewards and discount."""
        return f"{self.name}: rewards 1 and {self.right:g}, gamma = {self.discount:g}"

    @cached_property
    def random(self) -> QTables:
        """Q of the uniform policy."""
        return policy_q(line_world(self.right), UNIFORM, self.discount)

    @cached_property
    def optimal(self) -> QTables:
        """Q of the optimal policy."""
        return optimal_q(line_world(self.right), self.discount)


PROPOSITION = LineWorld("Proposition 1", 0.0, 0.99)
CASES = (
    LineWorld("case (a)", 0.1, 0.99),
    LineWorld("case (b)", 0.9, 0.8),
    LineWorld("case (c)", 0.9, 0.97),
)


def line_world(right: float) -> TabularMDPs:
    """Return the paper's example: five states in a row, and the actions left and right.

    Args:
        right: reward of a step that ends in the last state; in the first one it is 1.
    """
    states = np.arange(5)
    following = np.stack([np.maximum(states - 1, 0), np.minimum(states + 1, 4)], axis=1)
    rewards = np.where(following == 0, 1.0, np.where(following == 4, right, 0.0))
    return TabularMDPs(following[None].astype(np.uint16), rewards[None].astype(np.float32))


def write_line_worlds(results: Path) -> Path:
    """Write the folder `theory` of a results folder, and return it."""
    folder = results / "theory"
    folder.mkdir(parents=True, exist_ok=True)
    _draw_proposition(folder / "q_tables.png")
    _draw_errors(folder / "td_error.png")
    _draw_cases(folder / "two_rewards.png")
    worlds = (PROPOSITION, *CASES)
    header = ("world", "best under the random policy", "best of all", "Assumption 2", "iterations")
    page = PAGE.format(
        verdicts=markdown_table(header, [_verdict(world) for world in worlds]),
        tables="\n".join(f"## {world.title}\n\n{_q_table(world)}" for world in worlds),
    )
    with atomic_path(folder / "README.md") as temporary:
        temporary.write_text(page, encoding="utf-8")
    write_json(folder / "provenance.json", portable(provenance()))
    return folder


def _verdict(world: LineWorld) -> list[str]:
    random, optimal = world.random, world.optimal
    holds = "fails" if agreement(random, optimal).unequal.any() else "holds"
    iterations = f"{random.iterations:,}, {optimal.iterations:,}"
    return [world.title, _letters(random), _letters(optimal), holds, iterations]


def _letters(tables: QTables) -> str:
    """Format the best actions of all states, as in `left left left right right`."""
    best = tables.best_actions()[0]
    return " ".join("/".join(np.array(ACTIONS)[row]) for row in best)


def _q_table(world: LineWorld) -> str:
    header = ["state", *(f"{of}, {action}" for of in ("random", "optimal") for action in ACTIONS)]
    both = np.concatenate([world.random.values[0], world.optimal.values[0]], axis=1)
    rows = [[f"s{state}", *(f"{q:.3f}" for q in row)] for state, row in enumerate(both)]
    return markdown_table(header, rows)


def _draw_proposition(path: Path) -> None:
    with drawing(path, (12, 3.6)) as figure:
        rewards, initial, *tables = figure.subplots(1, 4)
        figure.suptitle(PROPOSITION.title)
        paid = line_world(PROPOSITION.right).rewards[0]
        _draw_table(rewards, "rewards", paid)
        _draw_table(initial, "Q, initial", np.zeros_like(paid))
        _draw_world(tables, PROPOSITION)


def _draw_cases(path: Path) -> None:
    with drawing(path, (7, 10)) as figure:
        for row, world in zip(figure.subplots(len(CASES), 2), CASES, strict=True):
            _draw_world(row, world)
            row[0].set_title(f"{world.title}\n{row[0].get_title()}", fontsize=10)


def _draw_world(panels: Sequence[Axes], world: LineWorld) -> None:
    """Draw both Q-tables of a world."""
    for axes, name, tables in zip(
        panels, ("Q, uniform policy", "Q, optimal"), (world.random, world.optimal), strict=True
    ):
        _draw_table(axes, name, tables.values[0], tables.best_actions()[0])


def _draw_table(
    axes: Axes, title: str, values: NDArray[np.floating], best: NDArray[np.bool_] | None = None
) -> None:
    """Draw (5, 2) numbers on a colored grid; a star marks the best actions."""
    axes.imshow(values, cmap="Blues", aspect="auto", vmax=values.max() * 1.6)
    for (state, action), value in np.ndenumerate(values):
        star = " ★" if best is not None and best[state, action] else ""
        axes.text(action, state, f"{value:.4g}{star}", ha="center", va="center")
    axes.set_xticks(range(2), ACTIONS)
    axes.set_yticks(range(len(values)), [f"s{state}" for state in range(len(values))])
    axes.set_title(title, fontsize=10)


def _draw_errors(path: Path) -> None:
    with drawing(path, (5.5, 3.6)) as figure:
        axes = figure.subplots()
        for name, q in (("uniform policy", PROPOSITION.random), ("optimal", PROPOSITION.optimal)):
            label = f"{name}: {q.iterations:,} iterations"
            axes.semilogy(np.arange(1, q.iterations + 1), q.errors, label=label)
        axes.set_xlabel("iteration")
        axes.set_ylabel("largest TD error")
        axes.set_title(PROPOSITION.title, fontsize=10)
        axes.legend(frameon=False)
