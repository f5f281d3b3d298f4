"""Room in pictures of many rows."""

import pytest
from matplotlib.figure import Figure

from sad_hpc.aggregate.figures import _add_legend


@pytest.mark.parametrize("rows", [2, 9, 30])
def test_a_legend_is_whole_and_leaves_the_panel_its_height(rows: int):
    figure = Figure(figsize=(7.0, 4.6), layout="constrained")
    axes = figure.add_subplot()
    names = [f"SAD, N = {row}, N_ep = 256 (2 seeds)" for row in range(rows)]
    entries = {name: axes.plot([0, 1], [0, row], label=name)[0] for row, name in enumerate(names)}
    _add_legend(figure, entries, columns=3)
    figure.draw_without_rendering()
    (legend,) = figure.legends
    assert len(legend.get_texts()) == rows
    room, whole = legend.get_window_extent(), figure.bbox
    assert room.x0 >= whole.x0 and room.x1 <= whole.x1 and room.y0 >= whole.y0
    assert axes.get_window_extent().height / figure.dpi > 2.5
