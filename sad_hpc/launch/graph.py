"""The graph of a run: every stage of every (method, seed), and what each of them reads."""

import sys
from dataclasses import dataclass

from sad_hpc.experiment.methods import METHODS
from sad_hpc.storage.files import wait_until_seen
from sad_hpc.storage.run import Run
from sad_hpc.storage.stage_folder import StageFolder

STAGES = ("collect", "pretrain", "evaluate", "aggregate")

LAST = sys.maxsize
"""In the place of a round's number: after all of them."""


@dataclass(frozen=True)
class Step:
    """One stage of one (row, seed), or of the whole experiment."""

    folder: StageFolder
    run: Run
    """The run that the stage is called with: that of the row, where it differs."""
    requires: tuple["Step", ...] = ()
    element: tuple[str, int] | None = None
    """(method, seed) of pretrain and evaluate."""
    row: str | None = None
    """The first of the tables' rows that needs it."""

    @property
    def stage(self) -> str:
        """One of STAGES."""
        return self.folder.stage

    @property
    def wave(self) -> tuple[int, int]:
        """Steps of a wave need none of each other, and nothing of later waves."""
        rounds = self.run.experiment.data.rounds if self.stage in ("collect", "pretrain") else 0
        return rounds or LAST, STAGES.index(self.stage)

    @property
    def title(self) -> str:
        """Names the step in jobs.json, logs and messages; it includes the signature."""
        return self.folder.title

    @property
    def name(self) -> str:
        """The title, and the row where its method's name does not say it."""
        return (
            self.title if self.row is None or self.row in METHODS else f"{self.title} ({self.row})"
        )

    @property
    def complete(self) -> bool:
        """Whether the completion marker is there."""
        return self.folder.done is not None

    def is_seen_complete(self) -> bool:
        """The same, to whoever knows that the step's job has ended well; see `wait_until_seen`."""
        return wait_until_seen(lambda: self.complete)


def graph(run: Run) -> list[Step]:
    """Every step of a run, wave after wave; rows of the tables share what is the same.

    Where the models are another experiment's, their training is no step of this run.
    """
    steps: dict[str, dict[str, Step]] = {stage: {} for stage in STAGES}

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

    def trained(own: Run, element: tuple[str, int], row: str) -> Step:
        return add(Step(own.checkpoint(*element), own, (collected(own, row),), element, row))

    for row, seed in run.experiment.elements:
        own, method = run.of_row(row)
        element = (method, seed)
        needs = [collected(own, row)]
        if own.experiment.pretrained is None:
            needs.append(trained(own, element, row))
        add(Step(own.evaluation(*element), own, tuple(needs), element, row))
    add(Step(run.aggregate(), run, tuple(steps["evaluate"].values())))
    every = [step for stage in STAGES for step in steps[stage].values()]
    return sorted(every, key=lambda step: step.wave)
