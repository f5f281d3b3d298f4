"""The picture of several experiments' rows."""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from sad_hpc.aggregate.rows import MARKERS, _draw_panel
from sad_hpc.aggregate.summary import COLUMNS
from sad_hpc.evaluate.result import BAYES_OPTIMAL

NAMES = ["SAD", "SAD, 2 rounds"]
MEANS = {"offline": [1.0, 2.0], "sampled": [0.5, 0.25], "online": [3.0, 5.0]}


def line(row: str, mode: str, mean: float) -> dict:
    values = {"row": row, "mode": mode, "metric": "return", "subset": "all", "mean": mean}
    return values | {"ci_low": mean - 0.1, "ci_high": mean + 0.3}


def test_every_mean_and_interval_stands_in_the_line_of_its_row() -> None:
    lines = [
        line(row, mode, mean)
        for mode, means in MEANS.items()
        for row, mean in zip(NAMES, means, strict=True)
    ]
    lines.append(line(BAYES_OPTIMAL, "online", 4.0))
    summary = pd.DataFrame(lines[::-1], columns=list(COLUMNS))
    axes = Figure().add_subplot()
    _draw_panel(axes, summary, NAMES)
    assert [tick.get_text() for tick in axes.get_yticklabels()] == NAMES
    for bars, mode in zip(axes.containers, MARKERS, strict=True):
        points, _, (intervals,) = bars
        assert points.get_xdata().tolist() == MEANS[mode]
        assert np.round(points.get_ydata()).tolist() == [0, 1]
        ends = [segment[:, 0].tolist() for segment in intervals.get_segments()]
        assert np.allclose(ends, [[mean - 0.1, mean + 0.3] for mean in MEANS[mode]])
    assert [4.0, 4.0] in [list(each.get_xdata()) for each in axes.lines]
    _draw_panel(Figure().add_subplot(), summary[summary["mode"] != "sampled"], NAMES)
