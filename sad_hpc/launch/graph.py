"""The graph of a run: the steps (a stage of a method and seed), their requirements and calls."""

import sys
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from sad_hpc.experiment.experiment import Element
from sad_hpc.experiment.methods import METHODS
from sad_hpc.storage.files import wait_until_seen
from sad_hpc.storage.run import Run
from sad_hpc.storage.stage_folder import StageFolder

STAGES = ("collect", "pretrain", "evaluate", "aggregate")

LAST = sys.maxsize
"""Placeholder for the round number in steps that follow all rounds."""


@dataclass(frozen=True)
class Step:
    """One stage of one (row, seed), or of the whole experiment."""

    folder: StageFolder
    run: Run
    """The run to call the stage with: that of the row, if it has other settings."""
    requires: tuple["Step", ...] = ()
    element: Element | None = None
    """(method, seed) of a pretrain or evaluate step."""
    row: str | None = None
    """The first row of the tables that needs the step."""

    @property
    def stage(self) -> str:
        """One of STAGES."""
        return self.folder.stage

    @property
    def wave(self) -> tuple[int, int]:
        """Position in the order of work; a step requires only steps of earlier waves."""
        rounds = self.run.experiment.data.rounds if self.stage in ("collect", "pretrain") else 0
        return rounds or LAST, STAGES.index(self.stage)

    @property
    def title(self) -> str:
        """The step's name in jobs.json, logs and messages, with the signature."""
        return self.folder.title

    @property
    def name(self) -> str:
        """The title, with the row unless the row is a plain method."""
        return (
            self.title if self.row is None or self.row in METHODS else f"{self.title} ({self.row})"
        )

    @property
    def complete(self) -> bool:
        """True if the completion marker exists."""
        return self.folder.done is not None

    def is_seen_complete(self) -> bool:
        """Wait for the completion marker after the job has succeeded; see `wait_until_seen`."""
        return wait_until_seen(lambda: self.complete)

    def call(self, results: Path, replace: bool) -> None:
        """Call the stage in this process.

        Args:
            results: the folder of aggregate's tables.
            replace: whether aggregate may drop and replace results of other settings.
        """
        # Imported here, since each stage needs libraries that the launcher does not.
        if self.stage == "collect":
            collect_with_policy(self.run)
        elif self.stage == "aggregate":
            from sad_hpc.aggregate.stage import aggregate

            aggregate(self.run, results, replace=replace)
        else:
            assert self.element is not None
            if self.stage == "pretrain":
                pretrain_with_score(self.run, *self.element)
            else:
                from sad_hpc.evaluate.stage import evaluate

                evaluate(self.run, *self.element)


def collect_with_policy(run: Run) -> None:
    """Run collect; from the second round on, with the model of the round before."""
    from sad_hpc.collect.stage import collect

    if run.round_before is None:
        collect(run)
        return
    from sad_hpc.evaluate.rollout_policy import rollout_policy

    collect(run, rollout_policy(run))


def pretrain_with_score(run: Run, method: str, seed: int) -> None:
    """Run pretrain; with validation tasks, with the measure of weights on them."""
    from sad_hpc.pretrain.stage import pretrain

    if not run.experiment.source.pretrain.validation_tasks:
        pretrain(run, method, seed)
        return
    from sad_hpc.evaluate.validation import offline_score

    pretrain(run, method, seed, offline_score)


def graph(run: Run, kept: Collection[Element] = ()) -> list[Step]:
    """Return every step of a run, wave after wave; rows share equal steps.

    Args:
        run: the run.
        kept: (row, seed)s of which the results folder keeps the result, which need no step.

    Without an environment, training is the last stage.
    With `pretrained`, the training of the other experiment's models is not a step of this run.
    """
    steps: dict[str, dict[str, Step]] = {stage: {} for stage in STAGES}
    has_environment = run.experiment.family.has_environment

    def add(step: Step) -> Step:
        return steps[step.stage].setdefault(step.title, step)

    def collected(own: Run, row: str) -> Step:
        before = own.round_before
        followed = (
            [trained(before, ("SAD", seed), row) for seed in before.experiment.seeds]
            if before
            else []
        )
        return add(Step(own.data(), own, tuple(followed), row=row))

    def trained(own: Run, element: Element, row: str) -> Step:
        return add(Step(own.checkpoint(*element), own, (collected(own, row),), element, row))

    for row, seed in run.experiment.elements:
        if (row, seed) in kept:
            continue
        own, method = run.of_element(row, seed)
        element = (method, seed)
        needs = [collected(own, row)]
        if own.experiment.pretrained is None:
            needs.append(trained(own, element, row))
        if has_environment:
            add(Step(own.evaluation(*element), own, tuple(needs), element, row))
    if has_environment:
        add(Step(run.aggregate(), run, tuple(steps["evaluate"].values())))
    every = [step for stage in STAGES for step in steps[stage].values()]
    return sorted(every, key=lambda step: step.wave)
