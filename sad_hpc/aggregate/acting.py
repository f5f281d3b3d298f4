"""The comparison of acting rules (`evaluate.acting: auto`) as a table and as acting.png."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pandas as pd

from sad_hpc.aggregate.canvas import draw_band, drawing_panels, row_label, row_styles, share_height
from sad_hpc.evaluate.acting import TEMPERATURES, ActingRule
from sad_hpc.evaluate.result import Result

ACTING = "acting.png"
KINDS = {"sampled": "sampled", "greedy_after_reward": "greedy after a reward", "mean": "mean"}
"""Title of the panel of each kind of rule."""


def acting_table(results: Iterable[Result]) -> pd.DataFrame:
    """Return one line for each (row, seed, rule) of models whose rule was chosen.

    Columns: row, seed, temperature (0: greedy), kind (sampled, greedy_after_reward or mean), score
    (headline number on validation tasks), and whether the rule was chosen.
    """
    lines = [
        (each.row, each.seed, rule.temperature, _kind(rule), score, number == each.selection.chosen)
        for each in results
        if each.selection is not None
        for number, (rule, score) in enumerate(
            zip(each.selection.rules, each.selection.scores, strict=True)
        )
    ]
    return pd.DataFrame(lines, columns=["row", "seed", "temperature", "kind", "score", "chosen"])


def _kind(rule: ActingRule) -> str:
    return next((kind for kind in KINDS if getattr(rule, kind, False)), "sampled")


def draw_acting(path: Path, title: str, table: pd.DataFrame) -> None:
    """Draw the score of each row by temperature, with a panel for each kind of rule.

    Args:
        path: the picture to write.
        title: name of the experiment.
        table: lines of `acting_table`, at least one.
    """
    kinds = [kind for kind in KINDS if (table["kind"] == kind).any()]
    rows = list(dict.fromkeys(table["row"]))
    styles, ticks = row_styles(rows), np.arange(len(TEMPERATURES))
    with drawing_panels(path, len(kinds), f"{title}, acting rules on validation tasks") as panels:
        for axes, kind in zip(panels, kinds, strict=True):
            of_kind = table[table["kind"] == kind]
            for row in rows:
                lines = of_kind[of_kind["row"] == row]
                curves = lines.pivot(index="seed", columns="temperature", values="score")
                places = [TEMPERATURES.index(temperature) for temperature in curves]
                label = row_label(row, len(curves))
                draw_band(axes, np.array(places), curves.to_numpy(), styles[row], label)
            axes.set_xticks(ticks, [f"{each:g}" if each else "greedy" for each in TEMPERATURES])
            axes.set_xlabel("temperature")
            axes.set_title(KINDS[kind], fontsize=10)
        panels[0].set_ylabel("headline number")
        share_height(panels)
