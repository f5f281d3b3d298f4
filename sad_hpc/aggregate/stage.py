"""The last stage: from every element's result file to the tables and figures of an experiment."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from sad_hpc.aggregate.comparison_files import write_comparisons
from sad_hpc.aggregate.copies import copy_results
from sad_hpc.aggregate.csv_table import write_table
from sad_hpc.aggregate.diagnosis import diagnose, diagnosis_table
from sad_hpc.aggregate.diagnosis_figure import draw_diagnosis
from sad_hpc.aggregate.figures import draw_offline, draw_online
from sad_hpc.aggregate.labels import label_table
from sad_hpc.aggregate.order import row_order
from sad_hpc.aggregate.origin import Element, missing_notes, origin
from sad_hpc.aggregate.overwrite import check_overwrite
from sad_hpc.aggregate.readme import FILES, empty_notes, write_readme
from sad_hpc.aggregate.replacement import replacing
from sad_hpc.aggregate.series import check_alike, make_series
from sad_hpc.aggregate.summary import seed_table, summary_table, write_curves
from sad_hpc.aggregate.sweep import draw_sweep, sweep_table
from sad_hpc.aggregate.training import Training, read_training
from sad_hpc.aggregate.training_figure import draw_training
from sad_hpc.errors import SadError
from sad_hpc.evaluate.result import Result
from sad_hpc.evaluate.result_file import RESULT, read_result
from sad_hpc.experiment import plain_yaml
from sad_hpc.experiment.config import marked, training
from sad_hpc.storage.files import atomic_path, file_size, write_json
from sad_hpc.storage.run import Run
from sad_hpc.tasks.base import make_family

MADE = {*FILES, "README.md", "offline.png", "online.png", "diagnosis.png", "sweep.png"}
"""All that aggregate may make in a results folder; what else lies there is the user's."""


def aggregate(run: Run, results: Path, allow_missing: bool = False, replace: bool = False) -> Path:
    """Writes tables, figures and README of an experiment to results/<experiment> and returns it.

    The folder is replaced as a whole; files of other names that lie in it stay.

    Args:
        run: the run whose evaluations are read.
        results: the folder of all results.
        allow_missing: makes the tables from the elements that are there; README and headline table
            then name the others, and the stage is not marked as complete.
        replace: also drops and replaces results of other settings that the folder holds.

    Raises:
        SadError: an element has no result (unless allowed), none has one, a file is unusable or of
            another training, another process makes the same folder, or see `check_overwrite`.
    """
    run.check_ownership()
    present, missing = find_elements(run)
    if not present or (missing and not allow_missing):
        raise SadError(_missing_message(run, missing))
    if not replace:
        check_overwrite(run.experiment, results, present)
    rows = row_order(run.experiment.rows)
    read = [
        _read_element(run, element)
        for element in sorted(present, key=lambda each: rows.index(each[0]))
    ]
    check_alike(read)
    folder = results / run.experiment.name
    stage = run.aggregate()
    config = {"name": run.experiment.name, "evaluations": _evaluation_folders(run)}
    with run.writing(stage, config):
        with replacing(folder, MADE) as new:
            copy_results(read, new / "evaluations")
            _write_config(run, new)
            _write_results(run, new, folder, read, missing)
        if not missing:
            stage.complete(elements=len(present))
    return folder


def find_elements(run: Run) -> tuple[list[Element], list[Element]]:
    """The elements that have a result file, and those that have none."""
    present: list[Element] = []
    missing: list[Element] = []
    for element in run.experiment.elements:
        (present if _result_path(run, element).is_file() else missing).append(element)
    return present, missing


def _result_path(run: Run, element: Element) -> Path:
    return run.evaluation(*element).path / RESULT


def _missing_message(run: Run, missing: Sequence[Element]) -> str:
    names = ", ".join(f"{method} seed {seed}" for method, seed in missing)
    return (
        f"{run.path}: no result of {names} ({len(missing)} of {len(run.experiment.elements)}); "
        "run `sad-hpc launch CONFIG` for everything that is missing, or "
        "`sad-hpc evaluate CONFIG` if the models are trained"
    )


def _read_element(run: Run, element: Element) -> Result:
    """The element's result, under the name of its row.

    Raises:
        SadError: the file is of another element, or of a training with other settings.
    """
    result, (row, seed) = read_result(_result_path(run, element)), element
    own, method = run.of_row(row)
    found, wanted = f"{result.method} seed {result.seed}", f"{method} seed {seed}"
    if found == wanted:
        expected = own.experiment.evaluate_signature(method, seed)
        found, wanted = f"signature {result.signature}", f"signature {expected}"
    if found != wanted:
        raise SadError(
            f"{result.path} is of {found}, not of {wanted}; remove its folder and run `sad-hpc "
            "evaluate` again"
        )
    return dataclasses.replace(result, method=row)


def _evaluation_folders(run: Run) -> list[str]:
    return [run.evaluation(*element).path.name for element in run.experiment.elements]


def _write_config(run: Run, folder: Path) -> None:
    """config.json for programs, and config.yaml, which `sad-hpc launch` reads back unchanged."""
    config = run.experiment.model_dump(mode="json")
    write_json(folder / "config.json", config)
    if run.experiment.pretrained is not None:
        # Said once, where an override must reach it.
        for key in marked(type(run.experiment), training):
            del config[key]
    with atomic_path(folder / "config.yaml") as temporary:
        temporary.write_text(plain_yaml.written(config), encoding="utf-8")


def _write_results(
    run: Run, folder: Path, home: Path, read: Sequence[Result], missing: Sequence[Element]
) -> None:
    """Everything else, in `folder`, whose place will be `home`."""
    present = [(result.method, result.seed) for result in read]
    family = read[0].task_family
    series = make_series(read, row_order(run.experiment.rows))
    training = read_training(run, present)
    source = origin(run, present, missing)
    summary, seeds = summary_table(family, series), seed_table(family, series)
    gaps = missing_notes(source["missing"])

    write_json(folder / "provenance.json", source)
    write_table(folder / "summary.csv", summary)
    write_table(folder / "seeds.csv", seeds)
    labels, label_notes = label_table(run)
    _write_labels(run, folder, labels, summary)
    config = run.experiment.model_dump(mode="json")
    attributes = {"task_family": family, "config": config, "provenance": source}
    write_curves(folder / "summary.h5", series, training, attributes)
    write_comparisons(folder, [summary], [seeds], gaps)
    draw_offline(folder / "offline.png", family, series)
    draw_online(folder / "online.png", family, series)
    _write_diagnosis(run, folder, read)
    # The models may have been trained on another family's tasks.
    if training:
        trained_on = make_family(run.experiment.source.task).name
        draw_training(folder / "training.png", trained_on, training)
    notes = [*gaps, *empty_notes(series), *_training_notes(present, training), *label_notes]
    has_episodes = "episodes" in make_family(run.experiment.task).context_groups
    write_readme(folder, home, summary, labels, source, notes, has_episodes)
    # Last, with all that is there: what is deleted later is then missed, and made again.
    write_json(folder / "provenance.json", source | {"files": _sizes(folder)})


def _write_labels(run: Run, folder: Path, labels: pd.DataFrame, summary: pd.DataFrame) -> None:
    """The table of labels, also beside what a sweep's points have reached."""
    family = summary["task_family"].iloc[0]
    if len(labels):
        write_table(folder / "labels.csv", labels)
    if keys := list(run.experiment.sweep):
        table = sweep_table(run.experiment, labels, summary)
        write_table(folder / "sweep.csv", table)
        draw_sweep(folder / "sweep.png", family, table, keys, summary)


def _write_diagnosis(run: Run, folder: Path, read: Sequence[Result]) -> None:
    """What contexts show online, for families in which they are counted."""
    horizon = run.experiment.task.horizon
    if found := diagnose(read, horizon):
        write_table(folder / "diagnosis.csv", diagnosis_table(found, horizon))
        draw_diagnosis(folder / "diagnosis.png", read[0].task_family, found, horizon)


def _sizes(folder: Path) -> dict[str, int | None]:
    """Bytes of all files but provenance.json itself, by name."""
    return {
        str(path.relative_to(folder)): file_size(path)
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != "provenance.json"
    }


def _training_notes(present: Sequence[Element], training: Sequence[Training]) -> list[str]:
    drawn = {(one.method, seed) for one in training for seed in one.seeds}
    absent = [f"{method} seed {seed}" for method, seed in present if (method, seed) not in drawn]
    return [f"No training metrics of {', '.join(absent)}."] if absent else []
