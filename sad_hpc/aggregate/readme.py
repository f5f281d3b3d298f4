"""The files of a results folder that follow from results.h5: README.md, summary.csv, pictures."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sad_hpc.aggregate.canvas import row_styles
from sad_hpc.aggregate.claims import claims
from sad_hpc.aggregate.comparison import comparison
from sad_hpc.aggregate.comparison_text import comparison_markdown
from sad_hpc.aggregate.diagnosis import HEADER, diagnose, diagnosis_cells, draw_diagnosis
from sad_hpc.aggregate.figures import (
    distinct,
    draw_offline,
    draw_online,
    draw_sweep,
    drawn,
    sweep_cells,
    sweep_table,
)
from sad_hpc.aggregate.formats import (
    Markdown,
    markdown_table,
    plain_table,
    shown_safely,
    write_csv,
    write_page,
)
from sad_hpc.aggregate.origin import STAGE_HEADER, describe_stages, training_ranks
from sad_hpc.aggregate.results_file import RESULTS, RowFacts
from sad_hpc.aggregate.results_folder import (
    CONFIG,
    MADE,
    NOTES,
    PICTURES,
    PROVENANCE,
    README,
    SUMMARY,
    ResultsFolder,
)
from sad_hpc.aggregate.summary import headline_cells, pick, sentences
from sad_hpc.aggregate.training import distinct_trainings, draw_training, trainings_of
from sad_hpc.aggregate.verdict import verdicts
from sad_hpc.evaluate.result import MODES
from sad_hpc.storage.files import file_size
from sad_hpc.storage.json_files import read_json, write_json

FILES = {
    RESULTS: "every value of every test task, the reference policies and the training curves",
    SUMMARY: "mean, standard deviation, interquartile mean and 95 % interval of every policy",
    CONFIG: "the whole config, which `sad-hpc launch` reads",
    PROVENANCE: "command, commit, machine and library versions of every stage",
}


@dataclass(frozen=True)
class Fold:
    """A folded part of a page."""

    title: str
    picture: str = ""
    text: str = ""
    table: str = ""


def headline_table(folder: Path) -> str:
    """Return the headline numbers and verdicts of a results folder, aligned for a terminal.

    Raises:
        UserError: see `ResultsFolder`.
    """
    one = ResultsFolder(folder)
    title = f"{one.results.title}: mean ± standard deviation over seeds\n"
    notes = "".join(f"{note}\n" for note in one.notes)
    told = "".join(f"{line}\n" for line in verdicts(one))
    return shown_safely(f"{title}{plain_table(*headline_cells(one.summary))}{notes}\n{told}")


def render(one: ResultsFolder, home: Path) -> None:
    """Write all files of a results folder that follow from its results.h5.

    Args:
        one: the folder, with results.h5, config.yaml and provenance.json.
        home: the folder's final path.

    Raises:
        UserError: see `ResultsFolder`, or a file cannot be written.
    """
    folder = one.folder
    write_csv(folder / SUMMARY, one.summary)
    folds = [*_pictures(one), *_labels(one), *_comparisons(one)]
    launch, aggregate = _commands(home, one.provenance)
    width = max(len(launch), len(aggregate))
    seen = len(pick(one.summary, "offline", "reward_seen")) > 0
    episodes = [name for name in ("AD", "DIT") if name in one.results.rows]
    write_page(
        folder / README,
        "README.md.jinja",
        title=one.results.title,
        name=one.results.experiment,
        question=one.question,
        sentences=sentences(one.summary),
        has_notes=(home / NOTES).exists(),
        notes=[
            *one.notes,
            *_empty_notes(one),
            *_training_notes(one),
            *label_notes(one.results.rows.values()),
        ],
        headline=markdown_table(*headline_cells(one.summary)),
        seen=seen,
        of_episodes=episodes if seen and one.results.has_episodes else [],
        folds=folds,
        files={name: meaning for name, meaning in FILES.items() if (folder / name).exists()},
        place=_from_here(home),
        launch=launch.ljust(width),
        aggregate=aggregate.ljust(width),
        origin=one.provenance,
        stages=markdown_table(STAGE_HEADER, describe_stages(one.provenance)),
        config=one.config_text,
    )
    _record_sizes(folder)


def _record_sizes(folder: Path) -> None:
    """Record the sizes of all files in provenance.json, so that a launch detects missing files."""
    sizes = {
        path.name: file_size(path)
        for path in sorted(folder.iterdir())
        if path.name in MADE and path.name != PROVENANCE
    }
    record = read_json(folder / PROVENANCE)
    write_json(folder / PROVENANCE, record | {"files": sizes})


def _pictures(one: ResultsFolder) -> list[Fold]:
    """Draw all pictures, and return the folds of all except online.png, which begins the page.

    A sweep has its own picture instead of the diagnosis.
    """
    folder, found = one.folder, one.results
    draw_online(folder / "online.png", found.title, one.series)
    draw_offline(folder / "offline.png", found.title, one.series)
    folds = [Fold(PICTURES["offline.png"], "offline.png")]
    folds += _sweep(one) if found.sweep else _diagnosis(one)
    shown = _drawn_rows(one)
    trainings = distinct_trainings(trainings_of(found))
    if training := [each for each in trainings if each.row in shown]:
        styles = row_styles(found.rows)
        draw_training(folder / "training.png", found.trained_title, training, styles)
        folds.append(Fold(PICTURES["training.png"], "training.png"))
    return folds


def _drawn_rows(one: ResultsFolder) -> set[str]:
    """Return the names that online.png shows."""
    online = [each for each in one.series if each.mode == "online" and each.subset == "all"]
    return {each.policy for each in drawn(distinct(online))}


def _sweep(one: ResultsFolder) -> list[Fold]:
    keys = one.results.sweep
    table = sweep_table(one.results.rows.values(), keys, one.summary)
    if table.empty:
        return []
    draw_sweep(one.folder / "sweep.png", one.results.title, table, keys)
    cells = markdown_table(*sweep_cells(table, keys))
    return [Fold(PICTURES["sweep.png"], "sweep.png", table=cells)]


def _diagnosis(one: ResultsFolder) -> list[Fold]:
    horizon, shown = one.results.horizon, _drawn_rows(one)
    found = [each for each in diagnose(one.results.results, horizon) if each.policy in shown]
    if not found:
        return []
    styles = row_styles(one.results.rows)
    draw_diagnosis(one.folder / "diagnosis.png", one.results.title, found, horizon, styles)
    after = f"after episode {found[0].first}"
    text = f"Left: the mean return {after}. Right: contexts without a reward."
    cells = markdown_table(HEADER, diagnosis_cells(found, horizon))
    return [Fold(PICTURES["diagnosis.png"], "diagnosis.png", text, cells)]


def _labels(one: ResultsFolder) -> list[Fold]:
    """Return the table of label accuracies and transitions, without rows of unread datasets."""
    header = ["row", "label accuracy", "transitions of a context", "of its labels"]
    lines = [
        [
            row.row,
            "" if math.isnan(row.label_accuracy) else f"{row.label_accuracy:.1%}",
            f"{row.context_transitions:,.0f}",
            f"{row.label_transitions:,.0f}",
        ]
        for row in one.results.rows.values()
        if not math.isnan(row.context_transitions)
    ]
    title = "Labels, and the transitions of a training task"
    return [Fold(title, table=markdown_table(header, lines))] if lines else []


def _comparisons(one: ResultsFolder) -> list[Fold]:
    pages = [
        comparison_markdown(
            comparison([one.summary], mode),
            mode,
            claims([one.summary], [one.seeds], [one.claimed], mode),
        )
        for mode in MODES
    ]
    title = "Every row beside Bayes-optimal, optimal and random play, and the paper's percentages"
    return [Fold(title, text=Markdown("\n".join(pages)))]


def _empty_notes(one: ResultsFolder) -> list[str]:
    """Return a sentence for every series in which a seed has no entry to average."""
    return [
        f"{each.policy}, {each.mode}, {each.subset}: no entry of seed "
        f"{', '.join(map(str, each.empty_seeds))} is in this subset; it is in no mean over seeds."
        for each in one.series
        if each.empty_seeds
    ]


def _training_notes(one: ResultsFolder) -> list[str]:
    absent = [
        f"{each.result.row} seed {each.result.seed}"
        for each in one.results.seeds
        if not each.training
    ]
    return [f"No training metrics of {', '.join(absent)}."] if absent else []


def label_notes(rows: Iterable[RowFacts]) -> list[str]:
    """Return a sentence that names the rows whose dataset cannot be read; empty without any."""
    unread = [row.row for row in rows if math.isnan(row.context_transitions)]
    if not unread:
        return []
    return [
        f"No label accuracy of {', '.join(unread)}: the dataset is missing or damaged "
        "(`sad-hpc verify RUN` names the file)."
    ]


def _commands(folder: Path, origin: dict[str, Any]) -> tuple[str, str]:
    """Return the commands that repeat the whole experiment, and only this folder."""
    shown = _from_here(folder)
    arguments = str(shown / CONFIG)
    if shown.parent != Path("results"):  # the default
        arguments += f" --results {shown.parent}"
    ranks = training_ranks(origin)
    as_then = "" if ranks in (None, 1) else f" cluster.pretrain.ranks={ranks}"
    return f"sad-hpc launch {arguments}{as_then}", f"sad-hpc aggregate {arguments}"


def _from_here(folder: Path) -> Path:
    """Return the folder relative to the working directory, without absolute paths."""
    folder, here = folder.resolve(), Path.cwd()
    return folder.relative_to(here) if folder.is_relative_to(here) else Path("results", folder.name)
