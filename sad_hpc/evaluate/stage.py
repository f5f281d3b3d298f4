"""The evaluation of one (method, seed): one job of an array job, one HDF5 file.

Test tasks are evaluated in chunks.  Each chunk has its own random numbers and is saved at its end,
so an interrupted evaluation resumes with the next chunk and has the same result.
"""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sad_hpc.dataset.layout import layout
from sad_hpc.dataset.reader import (
    Arrays,
    last_parts,
    load_complete,
    read_columns,
    read_parts,
)
from sad_hpc.dataset.schema import Manifest
from sad_hpc.errors import UserError
from sad_hpc.evaluate.acting import Selection
from sad_hpc.evaluate.evaluation import Evaluation
from sad_hpc.evaluate.exact import ExactReference
from sad_hpc.evaluate.families import Modes, evaluate_family, n_units
from sad_hpc.evaluate.policy import Trained, load_model
from sad_hpc.evaluate.result import ModeResult
from sad_hpc.evaluate.result_file import RESULT, read_result, write_result
from sad_hpc.evaluate.selection import CHUNKS, COMPARED_TASKS, selected
from sad_hpc.experiment.methods import METHODS
from sad_hpc.experiment.sections import EvaluateConfig
from sad_hpc.kernels.compilation import compilation_announced
from sad_hpc.parallel import preemption
from sad_hpc.pretrain.training_columns import context_parts
from sad_hpc.storage.progress import Progress, say_complete
from sad_hpc.storage.run import Run
from sad_hpc.storage.stage_folder import StageFolder
from sad_hpc.tasks.base import TaskFamily, make_family
from sad_hpc.tasks.tabular import TabularFamily
from sad_hpc.user_code import UserCode

OF_EXACT = (0, 2)
"""The last words of the exact learners' seed, see `selection.PURPOSE`."""


def evaluate(run: Run, method: str, seed: int) -> None:
    """Evaluate the trained model of one (method, seed) on test tasks, and write `result.h5`.

    Raises:
        CheckpointError: the model is not trained, or damaged.
        DatasetError: the test split is missing, damaged, or of another config.
        Preempted: a signal stopped the evaluation; finished chunks are saved.
    """
    folder, experiment = run.evaluation(method, seed), run.experiment
    if folder.done is not None:
        say_complete(folder)
        return
    run.check_ownership()
    family = make_family(experiment.task)
    if not family.has_environment:
        raise UserError(
            f"{family.name} has no environment for an evaluation: `sad-hpc export` writes a "
            "trained policy that you can run in yours"
        )
    attributes = {
        "signature": experiment.evaluate_signature(method, seed),
        "config": experiment.model_dump(mode="json"),
        "method": method,
        "seed": seed,
        "task_family": family.name,
    }
    columns = _test_columns(run, family, experiment.evaluate.tasks)
    longest = METHODS[method].longest_context(experiment.source.context_length(method))
    trained = Trained(load_model(run, method, seed), longest)
    exact = ExactReference(family, experiment, method)
    evaluation = ChunkedEvaluation(
        family, trained, exact, columns, experiment.evaluate, folder, attributes
    )
    with run.writing(folder, experiment.evaluate_config(method, seed)):
        if folder.done is not None:  # an earlier start of the job has finished meanwhile
            say_complete(folder)
            return
        evaluation.selection = _selection(run, family, trained, seed, folder)
        modes = evaluation.all_chunks()
        evaluation.write(folder.path / RESULT, columns, modes)
        means: dict[str, Any] = {
            f"{mode}_{each.measure.metric}": each.headline_mean for mode, each in modes.items()
        }
        folder.complete(outputs=[RESULT], **means)
        shutil.rmtree(folder.path / CHUNKS, ignore_errors=True)


class ChunkedEvaluation:
    """The evaluation of a model on all test tasks, in chunks.

    Args:
        family: family of the tasks.
        trained: the model.
        exact: the exact learner of its row.
        columns: contexts and parameters of all tasks.
        settings: settings of the evaluation.
        folder: folder of the result.
        attributes: attributes of result files, including `seed` and `signature`.
    """

    def __init__(
        self,
        family: TaskFamily,
        trained: Trained,
        exact: ExactReference,
        columns: Arrays,
        settings: EvaluateConfig,
        folder: StageFolder,
        attributes: dict[str, Any],
    ) -> None:
        self._family, self._trained, self._exact = family, trained, exact
        self._columns = columns
        self._settings, self._folder, self._attributes = settings, folder, attributes
        self.selection: Selection | None = None
        """Record of the choice of the acting rule; None: the config gives the rule."""

    def all_chunks(self) -> Modes:
        """Return the results on all tasks; saved chunks are not evaluated again."""
        size = self._settings.chunk_tasks
        firsts = range(0, self._settings.tasks, size)
        found = {number: self._saved(number) for number in range(len(firsts))}
        units, unit = n_units(self._family, self._settings)
        finished = units * sum(modes is not None for modes in found.values())
        with (
            Progress(self._folder, units * len(firsts), unit, finished) as progress,
            compilation_announced(progress.say),
        ):
            for number, first in enumerate(firsts):
                if found[number] is None:
                    rows = slice(first, first + size)
                    report = _after(finished, progress)
                    found[number] = self._evaluate_chunk(number, rows, report)
                    finished += units
        chunks = [modes for modes in found.values() if modes is not None]
        return {mode: ModeResult.of_chunks([each[mode] for each in chunks]) for mode in chunks[0]}

    def write(self, path: Path, columns: Arrays, modes: Modes) -> None:
        """Write results with their tasks."""
        tasks = {name: columns[f"tasks/{name}"] for name in ("index", "parameters")}
        write_result(path, self._attributes, tasks, modes, self.selection)

    def _evaluate_chunk(self, number: int, rows: slice, report: Callable[[int], None]) -> Modes:
        columns = {name: column[rows] for name, column in self._columns.items()}
        seeds = [self._settings.seed, self._attributes["seed"], number]
        generator = np.random.default_rng(seeds)
        with UserCode(lambda: f"chunk {number} of the evaluation", watched=False):
            chosen = self.selection.rule if self.selection else None
            evaluation = Evaluation(self._trained, self._settings, generator, report, chosen)
            modes = evaluate_family(self._family, evaluation, columns)
            # The same random numbers for all seeds, whose equal references are stored once.
            own = np.random.default_rng([self._settings.seed, number, *OF_EXACT])
            modes = self._exact.added(modes, columns, own)
        self.write(self._chunk(number), columns, modes)
        return modes

    def _chunk(self, number: int) -> Path:
        return self._folder.path / CHUNKS / f"{number:05d}.h5"

    def _saved(self, number: int) -> Modes | None:
        """Return a chunk's results if an earlier start has finished it, or None."""
        if not self._chunk(number).exists():
            return None
        try:
            result = read_result(self._chunk(number))
        except UserError:
            return None
        return result.modes if result.signature == self._attributes["signature"] else None


def _after(finished: int, progress: Progress) -> Callable[[int], None]:
    """Return a chunk's report function, which raises Preempted after a signal."""

    def report(units: int) -> None:
        preemption.check()
        progress.update(finished + units)

    return report


def _selection(
    run: Run, family: TaskFamily, trained: Trained, seed: int, folder: StageFolder
) -> Selection | None:
    """Return how the acting rule is chosen; None: the config gives it."""
    if run.experiment.evaluate.acting == "given":
        return None
    parameters = _compared_tasks(run, family)
    return selected(family, trained, parameters, run.experiment.evaluate, seed, folder)


def _compared_tasks(run: Run, family: TaskFamily) -> NDArray[Any]:
    """Return the parameters (n, p) of the tasks on which acting rules are compared.

    These are the validation tasks in turn, or the last tasks of the training split if there are
    none.  Training holds the last ones out; in tabular families others are equal to them.
    """
    experiment = run.experiment
    share = experiment.pretrain.validation_tasks
    if share and isinstance(family, TabularFamily):
        tasks = family.validation_tasks(share)
        return tasks[np.arange(COMPARED_TASKS) % len(tasks)]
    train, manifest = _split(run, family, "train")
    name, columns = "tasks/parameters", layout(family, experiment.data)
    parts = last_parts(manifest, COMPARED_TASKS)
    return read_parts(train, manifest, [name], parts, columns)[name]


def _test_columns(run: Run, family: TaskFamily, n_tasks: int) -> Arrays:
    """Read the offline contexts, numbers and parameters of the first test tasks."""
    experiment = run.experiment
    folder, manifest = _split(run, family, "test")
    parts = [f"{experiment.evaluate.context}/{part}" for part in context_parts(family)]
    names = [*parts, "tasks/index", "tasks/parameters"]
    return read_columns(folder, manifest, names, n_tasks, layout(family, experiment.data))


def _split(run: Run, family: TaskFamily, split: str) -> tuple[Path, Manifest]:
    """Return the folder and the manifest of a complete split."""
    experiment, folder = run.experiment, run.data().path / split
    made_by = experiment.data_signature(), experiment.data_config()
    return folder, load_complete(folder, *made_by, family.fingerprint)
