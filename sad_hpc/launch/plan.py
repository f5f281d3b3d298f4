"""What a launch submits: the steps that are missing, grouped into batches, and their dependencies.

    collect
      -> pretrain, a job a (method, seed)    afterok:collect
           -> evaluate, one throttled array  afterok:collect,afterany:<its pretrains>
                -> aggregate                 afterok:<every element>

`afterany`, because with `afterok` one failed training would hold the evaluation of all the others
back.  The element of the failed one starts, sees no finished checkpoint, and ends at once with an
error that says so.  (`aftercorr` pairs elements, but only of whole arrays of equal size: not what
is left over when a launch resumes.)  aggregate is strict, so that no table averages over what
happens to be there.

Rows of the tables with other settings make arrays of collect, and of each (method, seed)'s
trainings.  What waits for several datasets waits `afterany`, too, for the same reason.  So does the
collect of a further round (`data.rounds`) for the model whose rollouts it makes.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from sad_hpc.experiment.methods import METHODS
from sad_hpc.launch.graph import LAST, Step
from sad_hpc.launch.slurm import LARGEST_ARRAY


@dataclass(frozen=True)
class SubmitBatch:
    """Steps that are submitted together: one, or several as one array."""

    name: str
    """For the job, and for the script's file: `pretrain-sad-seed0`."""
    steps: tuple[Step, ...]
    pack: int = 1
    """Steps that share a job."""

    @property
    def stage(self) -> str:
        """The stage of all its steps."""
        return self.steps[0].stage

    @property
    def elements(self) -> int | None:
        """Size of the job array; None for a plain job."""
        return len(self.packs) if len(self.packs) > 1 else None

    @property
    def packs(self) -> list[tuple[Step, ...]]:
        """The steps of each job."""
        return _parts(self.steps, self.pack)

    @property
    def largest_pack(self) -> int:
        """Steps of the first job, for which all ask: there may be fewer than would fit."""
        return min(self.pack, len(self.steps))


def missing_steps(steps: Iterable[Step], active: Collection[str]) -> list[Step]:
    """The steps to submit: not complete, and without a job that can still complete them.

    Args:
        steps: of `graph(run)`.
        active: titles of steps whose jobs are queued or running.  A job that waits for one that has
            to be submitted again waits in vain: its step is missing, too.
    """
    missing: dict[str, Step] = {}
    for step in steps:
        in_vain = any(required.title in missing for required in step.requires)
        if not step.complete and (step.title not in active or in_vain):
            missing[step.title] = step
    return list(missing.values())


def batches(
    missing: Iterable[Step], largest: int = LARGEST_ARRAY, packs: Mapping[str, int] | None = None
) -> list[SubmitBatch]:
    """Each training of a (method, seed) on its own, or as an array of a table's rows; what else a
    stage has to do is one job, or one array, or several of at most `largest` elements.

    Args:
        missing: steps to submit.
        largest: elements of an array.
        packs: by stage, how many steps share a job; 1 where it says nothing.
    """
    packs = packs or {}
    grouped: dict[str, list[Step]] = {}
    for step in missing:
        rounds, name = step.wave[0], step.stage
        if step.stage == "pretrain" and step.element is not None and packs.get(name, 1) == 1:
            method, seed = step.element
            name = f"pretrain-{METHODS[method].slug}-seed{seed}"
        if 1 < rounds < LAST:
            name += f"-round{rounds}"
        grouped.setdefault(name, []).append(step)
    planned = []
    for name, group in grouped.items():
        pack = packs.get(group[0].stage, 1)
        parts = _parts(group, largest * pack)
        numbers = [f"-part{n}" for n in range(1, len(parts) + 1)] if len(parts) > 1 else [""]
        planned += [
            SubmitBatch(name + n, part, pack) for n, part in zip(numbers, parts, strict=True)
        ]
    return planned


def _parts(steps: Sequence[Step], size: int) -> list[tuple[Step, ...]]:
    return [tuple(steps[i : i + size]) for i in range(0, len(steps), size)]


def dependency(batch: SubmitBatch, ids: Mapping[str, str]) -> str | None:
    """What sbatch's --dependency says; None if everything that the batch reads is complete.

    Args:
        batch: what is submitted.
        ids: job ids of the incomplete steps by title.
    """
    required = {each.title: each for step in batch.steps for each in step.requires}.values()
    collects = [step for step in required if step.stage == "collect"]
    pretrains = [step for step in required if step.stage == "pretrain"]
    others = [step for step in required if step.stage == "evaluate"]
    if len(collects) == 1:
        others = collects + others
    else:
        pretrains = collects + pretrains
    clauses = [_clause("afterok", others, ids), _clause("afterany", pretrains, ids)]
    return ",".join(clause for clause in clauses if clause) or None


def _clause(kind: str, steps: Iterable[Step], ids: Mapping[str, str]) -> str | None:
    # An array's steps share what they require: each id once.
    needed = dict.fromkeys(ids[step.title] for step in steps if step.title in ids)
    return ":".join([kind, *needed]) if needed else None
