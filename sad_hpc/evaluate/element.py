"""The evaluation of one (method, seed): one element of the array job, one HDF5 file.

Test tasks are evaluated chunk by chunk, each with random numbers of its own and saved when done: an
evaluation that was interrupted goes on with the next chunk and ends at the same numbers.
"""

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np

from sad_hpc.dataset.reader import Arrays, load_complete, read_columns
from sad_hpc.errors import SadError
from sad_hpc.evaluate.bandit import evaluate_bandit
from sad_hpc.evaluate.policy import load_model
from sad_hpc.evaluate.result import MODES, RESULT, ModeResult, read_result, write_result
from sad_hpc.evaluate.tabular import evaluate_tabular
from sad_hpc.experiment.sections import EvaluateConfig
from sad_hpc.parallel import preemption
from sad_hpc.pretrain.examples import context_parts
from sad_hpc.storage.progress import Progress
from sad_hpc.storage.run import Run
from sad_hpc.tasks.bandit import BanditFamily
from sad_hpc.tasks.base import TabularFamily, TaskFamily, make_family
from sad_hpc.tasks.miniworld.family import Miniworld

CHUNKS = "chunks"
"""Folder of the chunks' results, until all are there."""

Modes = dict[str, ModeResult]


def evaluate(run: Run, method: str, seed: int) -> None:
    """Evaluates the trained model of one (method, seed) on test tasks and writes `result.h5`.

    Raises:
        CheckpointError: the model is not trained, or damaged.
        DatasetError: the test split is missing, damaged, or of another config.
        Preempted: a signal stopped it; the chunks that were finished are saved.
    """
    folder = run.evaluation(method, seed)
    if folder.done is not None:
        return
    evaluation = Evaluation(run, method, seed)
    with run.writing(folder, run.experiment.evaluate_config(method, seed)):
        if folder.done is not None:  # while this one waited for its job's earlier start
            return
        modes = evaluation.all_chunks()
        evaluation.write(folder.path / RESULT, evaluation.columns, modes)
        folder.complete(
            outputs=[RESULT],
            **{f"{mode}_{each.measure.metric}": each.headline_mean for mode, each in modes.items()},
        )
        shutil.rmtree(folder.path / CHUNKS, ignore_errors=True)


class Evaluation:
    """The test tasks of one (method, seed), and the model that plays them."""

    def __init__(self, run: Run, method: str, seed: int) -> None:
        experiment = run.experiment
        self._seed, self._settings = seed, experiment.evaluate
        self._folder = run.evaluation(method, seed)
        self._model = load_model(run, method, seed)
        self._family = make_family(experiment.task)
        self.columns = _test_columns(run, self._family, self._settings.tasks)
        self._attributes = {
            "signature": experiment.evaluate_signature(method, seed),
            "config": experiment.model_dump(mode="json"),
            "method": method,
            "seed": seed,
            "task_family": self._family.name,
        }

    def all_chunks(self) -> Modes:
        """The results on all tasks; what is saved is not played again."""
        size = self._settings.chunk_tasks
        firsts = range(0, self._settings.tasks, size)
        found = {number: self._saved(number) for number in range(len(firsts))}
        units, unit = _work(self._family, self._settings)
        finished = units * sum(modes is not None for modes in found.values())
        with Progress(self._folder, units * len(firsts), unit, finished) as progress:
            for number, first in enumerate(firsts):
                if found[number] is None:
                    rows = slice(first, first + size)
                    report = _after(finished, progress)
                    found[number] = self._play(number, rows, report)
                    finished += units
        chunks = [modes for modes in found.values() if modes is not None]
        return {mode: ModeResult.of_chunks([each[mode] for each in chunks]) for mode in MODES}

    def write(self, path: Path, columns: Arrays, modes: Modes) -> None:
        """Writes results and which tasks they are of."""
        tasks = {name: columns[f"tasks/{name}"] for name in ("index", "parameters")}
        write_result(path, self._attributes, tasks, modes)

    def _play(self, number: int, rows: slice, report: Callable[[int], None]) -> Modes:
        columns = {name: column[rows] for name, column in self.columns.items()}
        generator = np.random.default_rng([self._settings.seed, self._seed, number])
        play = _player(self._family)
        modes: Modes = play(self._model, self._family, columns, self._settings, generator, report)
        self.write(self._chunk(number), columns, modes)
        return modes

    def _chunk(self, number: int) -> Path:
        return self._folder.path / CHUNKS / f"{number:05d}.h5"

    def _saved(self, number: int) -> Modes | None:
        """The results of a chunk that an earlier start has finished."""
        if not self._chunk(number).exists():
            return None
        try:
            result = read_result(self._chunk(number))
        except SadError:
            return None
        return result.modes if result.signature == self._attributes["signature"] else None


def _player(family: TaskFamily) -> Callable[..., Modes]:
    """What plays tasks of this kind of family."""
    if isinstance(family, TabularFamily):
        return evaluate_tabular
    if isinstance(family, BanditFamily):
        return evaluate_bandit
    if isinstance(family, Miniworld):
        from sad_hpc.evaluate.poses import evaluate_poses  # needs OpenGL

        return evaluate_poses
    raise TypeError(f"no evaluation for {type(family).__name__}")


def _work(family: TaskFamily, settings: EvaluateConfig) -> tuple[int, str]:
    """How many units of work a chunk is, and their name."""
    if isinstance(family, BanditFamily):
        return family.config.horizon, "pulls"
    return settings.online_episodes + 1, "episodes"


def _after(finished: int, progress: Progress) -> Callable[[int], None]:
    """What a chunk reports its own units to; a chunk that is told to stop is lost."""

    def report(units: int) -> None:
        preemption.check()
        progress.update(finished + units)

    return report


def _test_columns(run: Run, family: TaskFamily, n_tasks: int) -> Arrays:
    """Contexts (Algorithm 1) and parameters of the first test tasks."""
    experiment = run.experiment
    folder = run.data().path / "test"
    manifest = load_complete(folder, experiment.data_signature(), experiment.data_config())
    names = [f"context/{part}" for part in context_parts(family)]
    return read_columns(folder, manifest, [*names, "tasks/index", "tasks/parameters"], n_tasks)
