"""The README of a results folder, and the table that the command line prints."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from sad_hpc.aggregate.finished import Finished
from sad_hpc.aggregate.labels import label_cells
from sad_hpc.aggregate.origin import describe_stages, missing_notes, training_ranks
from sad_hpc.aggregate.paper import family_name
from sad_hpc.aggregate.series import Series
from sad_hpc.aggregate.summary import headline_cells, headline_title
from sad_hpc.aggregate.tables import markdown_table, plain_table
from sad_hpc.storage.files import atomic_path

FILES = {
    "summary.csv": "mean, standard deviation, interquartile mean and 95 % interval of every policy",
    "summary.h5": "the curve of every seed, of the reference policies and of pretraining",
    "labels.csv": "how often labels are right, and the transitions that they cost",
    "sweep.csv": "labels and performance of every point of the sweep",
    "compare_offline.md": "improvement of SAD, offline, beside the paper's numbers",
    "compare_offline.csv": "the same, for programs",
    "compare_offline.tex": "the same, in the paper's layout",
    "compare_online.md": "improvement of SAD, online, beside the paper's numbers",
    "compare_online.csv": "the same, for programs",
    "compare_online.tex": "the same, in the paper's layout",
    "training.png": "hold-out loss and label accuracy by epoch",
    "evaluations": "the result file of every (method, seed): all values of all test tasks",
    "config.json": "the whole config, defaults included",
    "config.yaml": "the same, to launch it again",
    "provenance.json": "command, commit, machine and library versions of every stage",
}
"""What a results folder holds, besides the figures that its README shows."""


def headline_table(folder: Path) -> str:
    """The headline numbers of a results folder as plain text, aligned for a terminal.

    Raises:
        SadError: see `Finished.of`.
    """
    one = Finished.of(folder)
    text = headline_title(one.summary) + "\n" + plain_table(*headline_cells(one.summary))
    return text + "".join(f"{note}\n" for note in missing_notes(one.provenance["missing"]))


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
) -> None:
    """Writes README.md.

    Args:
        folder: the results folder, with everything else in it.
        home: where it will be.
        summary: of the experiment.
        labels: see `label_table`.
        origin: the content of provenance.json.
        notes: sentences for its top.
    """
    name = origin["experiment"]
    families = ", ".join(family_name(family) for family in summary["task_family"].unique())
    sections = [
        f"# {name}: {families}\n",
        "".join(f"**{note}**\n\n" for note in notes),
        _headline_section(summary),
        "![Offline evaluation](offline.png)\n\n![Online evaluation](online.png)\n",
        "![Sweep](sweep.png)\n" if (folder / "sweep.png").exists() else "",
        _labels_section(labels),
        _files_section(folder),
        _regenerate_section(home, origin),
        _origin_section(origin),
        _config_section(folder),
    ]
    with atomic_path(folder / "README.md") as temporary:
        temporary.write_text("\n".join(part for part in sections if part), encoding="utf-8")


def _headline_section(summary: pd.DataFrame) -> str:
    return (
        f"{headline_title(summary)}\n\n"
        f"{markdown_table(*headline_cells(summary))}\n"
        "`reward seen`: only the test contexts that show at least one reward. Intervals, "
        "interquartile means and the other subsets are in [summary.csv](summary.csv). Bars and "
        "bands in the figures are one standard deviation over seeds.\n"
    )


def _labels_section(labels: pd.DataFrame) -> str:
    if not len(labels):
        return ""
    return f"## Labels, and what a training task costs\n\n{markdown_table(*label_cells(labels))}"


def _files_section(folder: Path) -> str:
    lines = [
        f"- [{name}]({name}): {meaning}"
        for name, meaning in FILES.items()
        if (folder / name).exists()
    ]
    return "\n".join(["## Files", "", *lines, ""])


def _regenerate_section(folder: Path, origin: dict[str, Any]) -> str:
    shown = _from_here(folder)
    arguments = str(shown / "config.yaml")
    if shown.parent != Path("results"):  # the default
        arguments += f" --results {shown.parent}"
    ranks = training_ranks(origin)
    as_then = "" if ranks in (None, 1) else f" cluster.pretrain.ranks={ranks}"
    launch, aggregate = f"sad-hpc launch {arguments}{as_then}", f"sad-hpc aggregate {arguments}"
    width = max(len(launch), len(aggregate))
    lines = [
        "## Make it again",
        "",
        "```",
        f"{launch:{width}}    # everything that is not there yet",
        f"{aggregate:{width}}    # only this folder, from finished evaluations",
        "```",
        "",
    ]
    if origin["command"]:
        lines += [f"It was made with `{' '.join(origin['command'])}`.", ""]
    return "\n".join(lines)


def _from_here(folder: Path) -> Path:
    """The folder as commands given in the working directory name it, without the machine's own."""
    folder, here = folder.resolve(), Path.cwd()
    return folder.relative_to(here) if folder.is_relative_to(here) else Path("results", folder.name)


def _origin_section(origin: dict[str, Any]) -> str:
    header = ["stage", "commit", "machine", "versions"]
    return (
        "## Where it comes from\n\n"
        f"Dataset `{origin['dataset_signature']}`, "
        f"training seeds {', '.join(map(str, origin['seeds']))}.\n\n"
        f"{markdown_table(header, describe_stages(origin))}"
    )


def _config_section(folder: Path) -> str:
    config = (folder / "config.yaml").read_text(encoding="utf-8")
    return f"## Config\n\n```yaml\n{config}```\n"
