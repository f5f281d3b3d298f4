"""The plan of a launch: batches of incomplete steps, and their Slurm dependencies.

    collect
      -> pretrain, a job a (method, seed)    afterok:collect
           -> evaluate, one throttled array  afterok:collect,afterany:<its pretrains>
                -> aggregate                 afterok:<every element>

evaluate uses `afterany` because with `afterok` one failed training would block the evaluation of
all others.  The element of a failed training finds no finished checkpoint, and ends with an error.
(`aftercorr` pairs elements only of whole arrays of equal size, which a resumed launch does not
have.)  aggregate uses `afterok`, so that no table averages over an incomplete set.

If rows differ in settings, collect is an array, and so are the trainings of each (method, seed).  A
step that requires several datasets uses `afterany` for the same reason.  So does the collect of a
further round (`data.rounds`), which requires the model of its rollouts.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from sad_hpc.experiment.methods import METHODS
from sad_hpc.launch.graph import LAST, Step
from sad_hpc.launch.slurm import LARGEST_ARRAY


@dataclass(frozen=True)
class SubmitBatch:
    """Steps that are submitted together, as one job or one array."""

    name: str
    """Name of the job and of the script's file, such as `pretrain-sad-seed0`."""
    steps: tuple[Step, ...]
    pack: int = 1
    """Most steps that share a job."""

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
        """Number of steps of the first job, whose resources all jobs request."""
        return min(self.pack, len(self.steps))


def missing_steps(steps: Iterable[Step], active: Collection[str]) -> list[Step]:
    """Return the steps to submit: not complete, and without a job that can still complete them.

    Args:
        steps: the steps of `graph(run)`.
        active: titles of steps whose jobs are queued or running.  A step whose job depends on a
            step to submit is submitted again, too.
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
    """Group steps into batches.

    The trainings of a (method, seed) form a batch of their own unless they are packed.  All other
    steps of a stage form one batch, or several of at most `largest` jobs.

    Args:
        missing: steps to submit.
        largest: most elements of an array.
        packs: the number of steps that share a job, by stage; 1 by default.
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
    """Return the value of sbatch's --dependency; None if all requirements are complete.

    Args:
        batch: the batch to submit.
        ids: job ids of incomplete steps by title.
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
    # The steps of an array share requirements; list each id once.
    needed = dict.fromkeys(ids[step.title] for step in steps if step.title in ids)
    return ":".join([kind, *needed]) if needed else None
