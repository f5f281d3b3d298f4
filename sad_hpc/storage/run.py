"""A run's folder on disk: paths, heartbeats and completion markers.

    runs/<experiment>/
        config.json  provenance.json  jobs.json
        contexts/<name>/                             imported contexts
        data/<signature>/                            one dataset
        checkpoints/<method>-seed<k>-<signature>/    one trained model
        evaluations/<method>-seed<k>-<signature>/    one element's result.h5
        aggregates/<signature>/                      marker of finished tables
        logs/
Each stage folder holds `config.json` (the settings that decide its content), `provenance.json`,
`progress.json` (heartbeat) and, when complete, `done.json`.
"""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sad_hpc.errors import UserError, first_few
from sad_hpc.experiment.experiment import Experiment
from sad_hpc.experiment.load import parse_experiment
from sad_hpc.experiment.methods import METHODS
from sad_hpc.parallel.preemption import Preempted
from sad_hpc.storage.json_files import read_json, write_json
from sad_hpc.storage.lock import held
from sad_hpc.storage.ownership import check_ownership
from sad_hpc.storage.provenance import provenance
from sad_hpc.storage.stage_folder import StageFolder

MOST_NAMED = 8
"""Most trained models that an error names."""


@dataclass(frozen=True)
class Run:
    """An experiment and its folder; `runs` is the folder of all runs."""

    experiment: Experiment[Any]
    runs: Path = Path("runs")
    whole: Experiment[Any] | None = None
    """The experiment whose folder this is, if `experiment` is one row of its tables."""

    @classmethod
    def of_folder(cls, path: Path) -> "Run":
        """Return the run of a folder, from the config that is stored in it.

        Raises:
            UserError: the folder does not hold a run, or it was renamed.
        """
        if not path.is_dir():
            raise UserError(f"there is no folder {path}: nothing was launched under this name")
        stored = read_json(path / "config.json")
        if not isinstance(stored, dict):
            raise UserError(
                f"{path} is not a run's folder (it has no readable config.json; a dry run writes "
                "scripts alone): launch first, or give a config file"
            )
        run = cls(parse_experiment(stored, str(path / "config.json")), path.absolute().parent)
        if run.path.name != path.absolute().name:
            raise UserError(
                f"{path} holds the run {run.path.name!r}: rename the folder to {run.path.name}"
            )
        return run

    def of_element(self, row: str, seed: int) -> tuple["Run", str]:
        """Return the run that makes the data and the model of a (row, seed), and its method."""
        experiment, method = self.experiment.of_element(row, seed)
        if experiment is self.experiment:
            return self, method
        return Run(experiment, self.runs, self.whole or self.experiment), method

    @property
    def round_before(self) -> "Run | None":
        """The run of the model that label rollouts follow; see `Experiment.round_before`."""
        before = self.experiment.round_before
        if before is None:
            return None
        return Run(before, self.runs, self.whole or self.experiment)

    def with_datasets(self) -> list["Run"]:
        """Return one run for each distinct dataset."""
        runs = [self.of_element(*element)[0] for element in self.experiment.elements]
        return list({run.data().path: run for run in runs}.values())

    @property
    def path(self) -> Path:
        """The run's folder, runs/<experiment>."""
        return self.runs / self.experiment.name

    @property
    def logs(self) -> Path:
        """The folder of the jobs' logs."""
        return self.path / "logs"

    def data(self) -> StageFolder:
        """Return the dataset's folder; the run of an element may have another one."""
        return StageFolder("collect", self.path / "data" / self.experiment.data_signature())

    @property
    def contexts(self) -> Path:
        """The folder of contexts that `sad-hpc import` makes from logged episodes."""
        return self.path / "contexts"

    def checkpoint(self, row: str, seed: int) -> StageFolder:
        """Return the folder of a trained model, in the run of the experiment that trains it."""
        run, method = self.of_element(row, seed)
        if run.experiment.pretrained is not None:
            return Run(run.experiment.source, self.runs).checkpoint(method, seed)
        signature = run.experiment.pretrain_signature(method, seed)
        return self._element("pretrain", "checkpoints", method, seed, signature)

    def evaluation(self, row: str, seed: int) -> StageFolder:
        """Return the folder of an evaluation; its results are in `result.h5`."""
        run, method = self.of_element(row, seed)
        signature = run.experiment.evaluate_signature(method, seed)
        return self._element("evaluate", "evaluations", method, seed, signature)

    def aggregate(self) -> StageFolder:
        """Return the folder that marks finished tables."""
        folder = self.path / "aggregates" / self.experiment.aggregate_signature()
        return StageFolder("aggregate", folder)

    def prepare(self, command: Sequence[str]) -> None:
        """Create the folder and record the whole config and the command."""
        whole = self.whole or self.experiment
        write_json(self.path / "config.json", whole.model_dump(mode="json"))
        write_json(self.path / "provenance.json", {"command": list(command), **provenance()})

    def check_ownership(self) -> None:
        """Refuse the folders from which the stages read if another user could change them.

        Raises:
            UserError: see `sad_hpc.storage.ownership.check_ownership`.
        """
        for name in dict.fromkeys([self.experiment.name, self.experiment.source.name]):
            check_ownership(self.runs / name)

    @contextmanager
    def writing(self, folder: StageFolder, config: dict[str, Any]) -> Iterator[None]:
        """Prepare a stage's folder and hold its lock within this block.

        Raises:
            UserError: another process holds the lock, another user could change the folder, or see
                `StageFolder.prepare`.
        """
        self.check_ownership()
        with held(folder.path):
            if not (self.path / "config.json").exists():
                self.prepare([Path(sys.argv[0]).name, *sys.argv[1:]])
            folder.prepare(config)
            try:
                yield
            except (KeyboardInterrupt, Preempted):
                with suppress(UserError):  # only `status` needs the note
                    folder.note_stop()
                raise

    def _element(
        self, stage: str, folder: str, method: str, seed: int, signature: str
    ) -> StageFolder:
        name = f"{METHODS[method].slug}-seed{seed}-{signature}"
        return StageFolder(stage, self.path / folder / name)


def trained_models(run: Run) -> str:
    """Describe which (row, seed)s are trained, and which folders hold models of other settings.

    Args:
        run: the run of an experiment, or of one of its rows.
    """
    whole = Run(run.whole or run.experiment, run.runs)
    expected = {element: whole.checkpoint(*element) for element in whole.experiment.elements}
    done = [f"{row} seed {seed}" for (row, seed), folder in expected.items() if folder.done]
    known = {folder.path for folder in expected.values()}
    parents = {path.parent for path in known}
    others = [
        path.name
        for parent in sorted(parents)
        for path in sorted(parent.glob("*"))
        if path not in known and StageFolder("pretrain", path).done
    ]
    text = f"trained models: {first_few(done, MOST_NAMED) or 'none'}"
    if not others:
        return text
    return f"{text}; trained with other settings: {first_few(others, MOST_NAMED)}"
