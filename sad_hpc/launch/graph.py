"""The graph of a run: every stage of every (method, seed), and what each of them reads."""

from dataclasses import dataclass

from sad_hpc.run import Run, StageFolder

STAGES = ("collect", "pretrain", "evaluate", "aggregate")


@dataclass(frozen=True)
class Step:
    """One stage of one (method, seed), or of the whole experiment."""

    folder: StageFolder
    requires: tuple["Step", ...] = ()
    element: tuple[str, int] | None = None
    """(method, seed) of pretrain and evaluate."""

    @property
    def stage(self) -> str:
        """One of STAGES."""
        return self.folder.stage

    @property
    def title(self) -> str:
        """Names the step in jobs.json, logs and messages; it includes the signature."""
        return self.folder.title

    @property
    def complete(self) -> bool:
        """Whether the completion marker is there."""
        return self.folder.done is not None


def graph(run: Run) -> list[Step]:
    """Every step of a run, in the order of work.

    Where the models are another experiment's, their training is no step of this run.
    """
    collect, elements = Step(run.data()), run.experiment.elements
    pretrains = [
        Step(run.checkpoint(*element), (collect,), element)
        for element in elements
        if run.experiment.pretrained is None
    ]
    models = {step.element: (step,) for step in pretrains}
    evaluates = [
        Step(run.evaluation(*element), (collect, *models.get(element, ())), element)
        for element in elements
    ]
    return [collect, *pretrains, *evaluates, Step(run.aggregate(), tuple(evaluates))]
