"""What lies behind a comparison: every method's own number, and which are those of chance."""

from collections.abc import Sequence

import pandas as pd

from sad_hpc.aggregate.paper import family_name
from sad_hpc.aggregate.summary import mean_and_std, pick
from sad_hpc.evaluate.result import HIGHER_IS_BETTER
from sad_hpc.experiment.methods import BASELINES

COMPARED = ("SAD", *BASELINES)
OTHERS = (*BASELINES, "random", "optimal")
CHANCE = 0.1
"""A method whose number is less than this share better than random play's has learned nothing."""


def means_header(contenders: Sequence[str] = ("SAD",)) -> list[str]:
    """Titles of the columns that `means_cells` fills."""
    return ["Environment", *contenders, *OTHERS]


def means_cells(
    summaries: Sequence[pd.DataFrame], mode: str, contenders: Sequence[str] = ("SAD",)
) -> list[list[str]]:
    """A row an environment: its name and metric, then mean ± std over seeds of every method."""
    return [_cells(part, [*contenders, *OTHERS]) for part in _parts(summaries, mode)]


def chance_notes(summaries: Sequence[pd.DataFrame], mode: str) -> list[str]:
    """Which methods are no better than random play, as a sentence of its own if there are any."""
    found = []
    for part in _parts(summaries, mode):
        names = [name for name in COMPARED if _is_chance(part, name)]
        if names:
            found.append(f"{', '.join(names)} on {_environment(part)}")
    if not found:
        return []
    return [
        f"No better than random play: {'; '.join(found)}. By how many percent SAD is better than "
        "that, and an average over such percentages, says little."
    ]


def _parts(summaries: Sequence[pd.DataFrame], mode: str) -> list[pd.DataFrame]:
    parts = [pick(summary, mode, "all") for summary in summaries]
    return [part for part in parts if len(part)]


def _environment(part: pd.DataFrame) -> str:
    return family_name(part["task_family"].iloc[0])


def _cells(part: pd.DataFrame, names: Sequence[str]) -> list[str]:
    shown = [mean_and_std(part[part["method"] == name]) for name in names]
    return [f"{_environment(part)} ({part['metric'].iloc[0]})", *shown]


def _is_chance(part: pd.DataFrame, name: str) -> bool:
    means = part.set_index("method")["mean"]
    if name not in means or "random" not in means:
        return False
    better = 1 if HIGHER_IS_BETTER[part["metric"].iloc[0]] else -1
    return better * (means[name] - means["random"]) < CHANCE * abs(means["random"])
