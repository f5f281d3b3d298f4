"""diagnosis.png: online returns by the rewards in the context, and how often there are none."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from sad_hpc.aggregate.canvas import count_along, draw_band, drawing_panels
from sad_hpc.aggregate.diagnosis import WARM_UP, Diagnosis, bin_names
from sad_hpc.aggregate.paper import family_name
from sad_hpc.aggregate.styles import method_label, reference_style, row_styles


def draw_diagnosis(path: Path, family: str, found: Sequence[Diagnosis], horizon: int) -> None:
    """Left the mean return after the tenth episode by bin, right the share of contexts without any
    reward by episode; the T of `bins` is `horizon`."""
    styles = row_styles(one.policy for one in found if not one.is_reference)
    names = bin_names(horizon)
    title = f"{family_name(family)}, what the contexts show online"
    with drawing_panels(path, 2, title) as (left, right):
        for one in found:
            episodes = np.arange(1, one.without_reward.shape[1] + 1)
            if one.is_reference:
                look = reference_style(one.policy)
                left.plot(range(len(names)), one.returns, marker="o", ms=3, **look)
                right.plot(episodes, 100 * one.without_reward.mean(axis=0), **look)
            else:
                style, label = styles[one.policy], method_label(one.policy, len(one.seeds))
                draw_band(left, np.arange(len(names)), one.returns[None], style, label)
                draw_band(right, episodes, 100 * one.without_reward, style, label)
        left.set_xticks(range(len(names)), names, rotation=30)
        left.set_xlabel("rewarded transitions in the context")
        left.set_ylabel(f"return after episode {WARM_UP} (reward per episode)")
        left.set_ylim(bottom=0)
        count_along(right, "episode")
        right.set_ylabel("contexts without any reward (%)")
        right.set_ylim(0, 102)
