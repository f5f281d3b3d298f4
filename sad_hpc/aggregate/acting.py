"""The picture acting.png: the comparison of acting rules that `evaluate.acting: auto` made."""

from pathlib import Path

import numpy as np
import pandas as pd

from sad_hpc.aggregate.canvas import draw_band, drawing_panels, row_label, row_styles, share_height
from sad_hpc.aggregate.summary import KINDS


def draw_acting(path: Path, title: str, table: pd.DataFrame) -> None:
    """Draw the score of each row by temperature, with a panel for each kind of rule.

    Args:
        path: the picture to write.
        title: name of the experiment.
        table: lines of `acting_table`, at least one.
    """
    kinds = [kind for kind in KINDS if (table["kind"] == kind).any()]
    rows = list(dict.fromkeys(table["row"]))
    temperatures = sorted(table["temperature"].unique(), reverse=True)
    styles, ticks = row_styles(rows), np.arange(len(temperatures))
    with drawing_panels(path, len(kinds), f"{title}, acting rules") as panels:
        for axes, kind in zip(panels, kinds, strict=True):
            of_kind = table[table["kind"] == kind]
            for row in rows:
                lines = of_kind[of_kind["row"] == row]
                curves = lines.pivot(index="seed", columns="temperature", values="score")
                places = [temperatures.index(temperature) for temperature in curves]
                label = row_label(row, len(curves))
                draw_band(axes, np.array(places), curves.to_numpy(), styles[row], label)
            axes.set_xticks(ticks, [f"{each:g}" if each else "greedy" for each in temperatures])
            axes.set_xlabel("temperature")
            axes.set_title(KINDS[kind], fontsize=10)
        panels[0].set_ylabel("headline number")
        share_height(panels)
