"""The README of a results folder, and the table that the command line prints."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from sad_hpc.aggregate.labels import label_cells
from sad_hpc.aggregate.markdown import markdown_table
from sad_hpc.aggregate.origin import (
    STAGE_HEADER,
    describe_stages,
    missing_notes,
    training_ranks,
)
from sad_hpc.aggregate.pages import write_page
from sad_hpc.aggregate.paper import family_name
from sad_hpc.aggregate.results_folder import ResultsFolder
from sad_hpc.aggregate.series import Series
from sad_hpc.aggregate.summary import headline_cells, headline_title, pick
from sad_hpc.aggregate.tables import plain_table, printable

FILES = {
    "summary.csv": "mean, standard deviation, interquartile mean and 95 % interval of every policy",
    "summary.h5": "the curve of every seed, of the reference policies and of pretraining",
    "seeds.csv": "the headline number of every seed",
    "labels.csv": "label accuracy, and the transitions that labels cost",
    "sweep.csv": "labels and performance of every point of the sweep",
    "diagnosis.csv": "online returns and shares of contexts by the number of rewards in them",
    "compare_offline.md": "every row offline: values, shares of the ideal, what the paper's ratios "
    "imply, and the improvement of SAD beside the paper's",
    "compare_offline.csv": "the same, for programs",
    "compare_offline.tex": "the same, for papers",
    "compare_online.md": "every row online, in the same way",
    "compare_online.csv": "the same, for programs",
    "compare_online.tex": "the same, for papers",
    "training.png": "loss beyond the ideal learner's and label accuracy, on held-out tasks",
    "evaluations": "the result file of every element (row, seed): all values of all test tasks",
    "config.json": "the whole config, defaults included",
    "config.yaml": "the same, to launch it again",
    "provenance.json": "command, commit, machine and library versions of every stage",
}
"""What a results folder holds, besides the figures that its README shows."""


def headline_table(folder: Path) -> str:
    """The headline numbers of a results folder as plain text, aligned for a terminal.

    Raises:
        SadError: see `ResultsFolder`.
    """
    one = ResultsFolder(folder)
    text = headline_title(one.summary) + "\n" + plain_table(*headline_cells(one.summary))
    notes = missing_notes(one.provenance["missing"])
    return printable(text + "".join(f"{note}\n" for note in notes))


def empty_notes(series: Sequence[Series]) -> list[str]:
    """A sentence for every series in which a seed has no entry that could be averaged."""
    return [
        f"{one.policy}, {one.mode}, {one.subset}: no entry of seed "
        f"{', '.join(map(str, one.empty_seeds))} is in this subset; it is in no mean over seeds."
        for one in series
        if one.empty_seeds
    ]


def write_readme(
    folder: Path,
    home: Path,
    summary: pd.DataFrame,
    labels: pd.DataFrame,
    origin: dict[str, Any],
    notes: Sequence[str],
    has_episodes: bool,
) -> None:
    """Writes README.md.

    Args:
        folder: the results folder, with everything else in it.
        home: where it will be.
        summary: of the experiment.
        labels: see `label_table`.
        origin: the content of provenance.json.
        notes: sentences for its top.
        has_episodes: whether AD and DIT have contexts of their own, which are episodes.
    """
    launch, aggregate = _commands(home, origin)
    width = max(len(launch), len(aggregate))
    seen = len(pick(summary, "offline", "reward_seen")) > 0
    of_episodes = [name for name in ("AD", "DIT") if name in summary["method"].unique()]
    write_page(
        folder / "README.md",
        "README.md.jinja",
        origin=origin,
        families=", ".join(family_name(family) for family in summary["task_family"].unique()),
        notes=notes,
        title=headline_title(summary),
        headline=markdown_table(*headline_cells(summary)),
        seen=seen,
        of_episodes=of_episodes if seen and has_episodes else [],
        diagnosis=(folder / "diagnosis.png").exists(),
        sweep=(folder / "sweep.png").exists(),
        labels=markdown_table(*label_cells(labels)) if len(labels) else "",
        files={name: meaning for name, meaning in FILES.items() if (folder / name).exists()},
        launch=launch.ljust(width),
        aggregate=aggregate.ljust(width),
        stages=markdown_table(STAGE_HEADER, describe_stages(origin)),
        config=(folder / "config.yaml").read_text(encoding="utf-8"),
    )


def _commands(folder: Path, origin: dict[str, Any]) -> tuple[str, str]:
    """What makes everything again, and what makes the folder alone."""
    shown = _from_here(folder)
    arguments = str(shown / "config.yaml")
    if shown.parent != Path("results"):  # the default
        arguments += f" --results {shown.parent}"
    ranks = training_ranks(origin)
    as_then = "" if ranks in (None, 1) else f" cluster.pretrain.ranks={ranks}"
    return f"sad-hpc launch {arguments}{as_then}", f"sad-hpc aggregate {arguments}"


def _from_here(folder: Path) -> Path:
    """The folder as commands given in the working directory name it, without the machine's own."""
    folder, here = folder.resolve(), Path.cwd()
    return folder.relative_to(here) if folder.is_relative_to(here) else Path("results", folder.name)
