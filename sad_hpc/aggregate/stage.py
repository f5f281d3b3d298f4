"""The stage aggregate: results.h5 and the pages of an experiment from its result files."""

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path

from sad_hpc.aggregate.comparison import environment_title
from sad_hpc.aggregate.origin import origin
from sad_hpc.aggregate.readme import render
from sad_hpc.aggregate.results_file import (
    RESULTS,
    ExperimentResults,
    RowFacts,
    SeedResult,
    write_results,
)
from sad_hpc.aggregate.results_folder import (
    CONFIG,
    PROVENANCE,
    ResultsFolder,
    check_overwrite,
    replacing,
)
from sad_hpc.aggregate.series import check_alike, row_order
from sad_hpc.aggregate.stored import StoredResults
from sad_hpc.aggregate.training import read_finite_epochs
from sad_hpc.dataset.schema import Manifest
from sad_hpc.dataset.verify import label_accuracy, origin_of
from sad_hpc.errors import DatasetError, UserError
from sad_hpc.evaluate.result import Result
from sad_hpc.evaluate.result_file import RESULT, read_result
from sad_hpc.experiment import plain_yaml
from sad_hpc.experiment.config import Role, fields_of
from sad_hpc.experiment.experiment import Element
from sad_hpc.experiment.methods import METHODS
from sad_hpc.experiment.rows import grid_keys
from sad_hpc.storage.files import atomic_path
from sad_hpc.storage.json_files import write_json
from sad_hpc.storage.provenance import read_record
from sad_hpc.storage.run import Run
from sad_hpc.tasks.base import make_family


def aggregate(run: Run, results: Path, allow_missing: bool = False, replace: bool = False) -> Path:
    """Write results.h5, tables, figures and README to results/<experiment>, and return the folder.

    The folder is replaced as a whole; its files of other names are kept.  Elements without an
    evaluation keep the result that the folder has of the same settings.

    Args:
        run: the run whose evaluations are read.
        results: the folder of all results.
        allow_missing: accept missing elements.  The pages name them, and the stage is not marked as
            complete.
        replace: also drop and replace the folder's results of other settings.

    Raises:
        UserError: an element has no result (unless allowed), no element has one, a file is invalid
            or of another training, another process writes the folder, or see `check_overwrite`.
    """
    run.check_ownership()
    stored = StoredResults(run.experiment, results)
    evaluated = [each for each in run.experiment.elements if _result_path(run, each).is_file()]
    present = {*evaluated, *stored.elements}
    missing = [element for element in run.experiment.elements if element not in present]
    if not present or (missing and not allow_missing):
        raise UserError(_missing_message(run, missing))
    if not replace:
        check_overwrite(run.experiment, results, present)
    order = row_order(run.experiment.by_row)
    found = stored.elements | {element: _seed_result(run, element) for element in evaluated}
    elements = sorted(present, key=lambda each: (order.index(each[0]), each[1]))
    seeds = [found[element] for element in elements]
    check_alike([each.result for each in seeds])
    folder = results / run.experiment.name
    stage = run.aggregate()
    evaluations = [run.evaluation(*element).path.name for element in run.experiment.elements]
    config = {"name": run.experiment.name, "evaluations": evaluations}
    with run.writing(stage, config):
        with replacing(folder) as new:
            _write_config(run, new)
            write_json(new / PROVENANCE, origin(run, elements, stored.stages))
            facts = row_facts(run)
            rows = {row: _or_stored(facts[row], stored.rows.get(row)) for row in facts}
            write_results(new / RESULTS, _experiment_results(run, rows, seeds, missing))
            render(ResultsFolder(new), folder)
        if not missing:
            stage.complete(elements=len(elements))
    return folder


def _result_path(run: Run, element: Element) -> Path:
    return run.evaluation(*element).path / RESULT


def _missing_message(run: Run, missing: Sequence[Element]) -> str:
    names = ", ".join(f"{row} seed {seed}" for row, seed in missing)
    return (
        f"{run.path}: no result of {names} ({len(missing)} of {len(run.experiment.elements)}); "
        "run `sad-hpc launch CONFIG`, or `sad-hpc evaluate CONFIG` if the models are trained"
    )


def _seed_result(run: Run, element: Element) -> SeedResult:
    """Read the result of an element and the curves of its training."""
    result = _read_element(run, element)
    made = read_record(run.evaluation(*element).path / "provenance.json") or {}
    training = read_finite_epochs(run.checkpoint(*element).path)
    return SeedResult(result, made.get("commit") or "", training)


def _read_element(run: Run, element: Element) -> Result:
    """Read an element's result, under the name of its row.

    Raises:
        UserError: the file belongs to another element, or to a training with other settings.
    """
    result, (row, seed) = read_result(_result_path(run, element)), element
    own, method = run.of_element(row, seed)
    found, wanted = f"{result.row} seed {result.seed}", f"{method} seed {seed}"
    if found == wanted:
        expected = own.experiment.evaluate_signature(method, seed)
        found, wanted = f"signature {result.signature}", f"signature {expected}"
    if found != wanted:
        raise UserError(
            f"{result.path} belongs to {found}, not to {wanted}; remove its folder and run "
            "`sad-hpc evaluate` again"
        )
    return dataclasses.replace(result, row=row)


def _write_config(run: Run, folder: Path) -> None:
    """Write config.yaml, which `sad-hpc launch` reads back unchanged."""
    config = run.experiment.model_dump(mode="json")
    if run.experiment.pretrained is not None:
        # These keys follow from `pretrained`, so that an override there takes effect.
        for key in fields_of(type(run.experiment), Role.TRAINING):
            del config[key]
    with atomic_path(folder / CONFIG) as temporary:
        temporary.write_text(plain_yaml.written(config), encoding="utf-8")


def _experiment_results(
    run: Run, rows: dict[str, RowFacts], seeds: list[SeedResult], missing: list[Element]
) -> ExperimentResults:
    experiment, name = run.experiment, seeds[0].result.task_family
    family, trained = make_family(experiment.task), make_family(experiment.source.task)
    return ExperimentResults(
        experiment=experiment.name,
        title=environment_title(name, family),
        trained_title=environment_title(trained.name, trained),
        task_family=name,
        horizon=experiment.task.horizon,
        has_episodes="episodes" in family.context_groups,
        sweep=grid_keys(experiment.rows),
        config=experiment.model_dump(mode="json"),
        missing=missing,
        rows=rows,
        seeds=seeds,
    )


def row_facts(run: Run) -> dict[str, RowFacts]:
    """Return the facts of each row; those of its labels are NaN if its dataset cannot be read.

    Transitions are means over training tasks of the first seed's dataset.  Those of labels count
    all labels of a task in all rounds, and the incumbents' own play.  A label is correct if it is
    an optimal action in its query state.  AD's and DIT's labels are actions of the context itself,
    so they need no further transitions and have no accuracy here.
    """
    datasets: dict[str, tuple[Manifest, dict[str, float]]] = {}
    found = {}
    for row in row_order(run.experiment.by_row):
        own, method = run.of_element(row, run.experiment.seeds[0])
        found[row] = RowFacts(row, method, dict(run.experiment.by_row[row].settings))
        trained = Run(own.experiment.source, run.runs)
        folder = trained.data().path
        try:
            if folder.name not in datasets:
                datasets[folder.name] = _read_labels(folder / "train")
            earlier = _earlier_transitions(trained) if method == "SAD" else 0.0
        except DatasetError:
            continue
        found[row] = _with_labels(found[row], *datasets[folder.name], earlier)
    return found


def _or_stored(facts: RowFacts, stored: RowFacts | None) -> RowFacts:
    """Return the facts, with those of the labels from the results folder if they are unknown."""
    if stored is None or not math.isnan(facts.context_transitions):
        return facts
    return dataclasses.replace(stored, settings=facts.settings)


def _earlier_transitions(run: Run) -> float:
    """Return the mean transitions of a task's labels and own play in earlier rounds."""
    before = run.round_before
    if before is None:
        return 0.0
    manifest = Manifest.load(before.data().path / "train")
    return _sad_transitions(manifest) + _earlier_transitions(before)


def _sad_transitions(manifest: Manifest) -> float:
    """Return the mean transitions of a task's SAD labels and own play in one round."""
    steps = manifest.steps["labels_sad"] + manifest.steps.get("own_contexts", 0)
    return steps / manifest.n_tasks


def _read_labels(dataset: Path) -> tuple[Manifest, dict[str, float]]:
    manifest = Manifest.load(dataset)
    return manifest, label_accuracy(dataset, manifest, *origin_of(manifest))


def _with_labels(
    row: RowFacts, manifest: Manifest, accuracy: dict[str, float], earlier: float
) -> RowFacts:
    method = METHODS[row.method]
    labels = (method.labels or "").removeprefix("labels/")
    cost = manifest.steps.get(f"labels_{labels}", 0) / manifest.n_tasks
    if labels == "sad":
        cost = earlier + _sad_transitions(manifest)
    # Bandits have only one kind of context.
    context = manifest.steps[method.context] or manifest.steps["transitions"]
    return dataclasses.replace(
        row,
        label_accuracy=accuracy.get(labels, math.nan),
        context_transitions=context / manifest.n_tasks,
        label_transitions=cost,
    )
