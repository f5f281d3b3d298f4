"""The code of a job: every process of the job runs one step of the graph."""

import signal
import subprocess
import sys
import traceback
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from submitit import JobEnvironment

from sad_hpc.errors import ERROR_PREFIX, UserError, printable
from sad_hpc.experiment.load import parse_experiment
from sad_hpc.launch.controller import STOPPED, cause_of_death
from sad_hpc.launch.graph import Step, graph
from sad_hpc.launch.records import load_records
from sad_hpc.launch.slurm import has_ended_badly, must_queue_itself
from sad_hpc.parallel import preemption
from sad_hpc.parallel.preemption import Preempted
from sad_hpc.parallel.process import end_before_teardown
from sad_hpc.parallel.ranks import abort_other_ranks, is_first_of_slurm_step, world
from sad_hpc.parallel.submitit_private import PROGRAM, DelayedSubmission, UncompletedJobError
from sad_hpc.storage.files import keep_others_from_writing
from sad_hpc.storage.run import Run

PROGRAMS = (PROGRAM, "sad_hpc.launch.pack", "sad_hpc.launch.job")
"""The main modules of a job's processes, also of a pack's and an MpiJob's members."""

SIGNALS = (signal.SIGKILL, signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGILL)


@dataclass(frozen=True)
class StageJob:
    """A step as a callable that can be pickled.

    It holds the experiment as it was at submission, so that later edits of the config file have no
    effect.
    """

    title: str
    experiment: Mapping[str, Any]
    runs: str
    results: str
    replace: bool = False
    """True if aggregate may drop and replace results of other settings."""
    requires: tuple[str, ...] = ()
    """Titles of the steps that must be complete before this one starts."""

    @classmethod
    def of(cls, run: Run, step: Step, results: Path, replace: bool = False) -> "StageJob":
        """Return the job of a step, with absolute paths."""
        experiment = run.experiment.model_dump(mode="json")
        runs, tables = str(run.runs.absolute()), str(results.absolute())
        requires = tuple(each.title for each in step.requires)
        return cls(step.title, experiment, runs, tables, replace, requires)

    def __call__(self) -> None:
        """Run the stage; a failure ends all processes of the job with exit code 1.

        After a signal, the stage stops at a point where it can resume, and the job is requeued
        unless Slurm is ending it.
        """
        try:
            self._run()
        except SystemExit as end:
            _end_before_teardown(end.code)
            raise
        _end_before_teardown(0)

    def _run(self) -> None:
        keep_others_from_writing()
        queue_again = signal.getsignal(signal.SIGUSR2)
        try:
            if self.title.startswith("collect "):
                world()  # before the user's code, and while signals still end the process
            try:
                with preemption.watched():
                    self._run_stage()
            except Preempted as stop:
                print(f"{self.title}: {stop}; finished work is saved", flush=True)
                if not is_first_of_slurm_step():
                    sys.exit(0)  # Another exit code would make srun kill rank 0 before the requeue.
                queue_again_and_end(self.title, stop, queue_again)
        except Exception as error:
            # SystemExit passes through: submitit's requeue is one.
            if not isinstance(error, UserError | OSError):
                traceback.print_exc()
            print(f"{ERROR_PREFIX}{printable(str(error))}", file=sys.stderr, flush=True)
            sys.stdout.flush()
            # MPI ranks only: srun, or the controller of a local job, ends those of torch.
            abort_other_ranks()
            sys.exit(1)

    def checkpoint(self) -> DelayedSubmission:
        """Return the submission that submitit requeues at a time limit or preemption."""
        return DelayedSubmission(self)

    def _step(self) -> Step:
        run = Run(parse_experiment(dict(self.experiment), self.title), Path(self.runs))
        steps = {step.title: step for step in graph(run)}
        if self.title not in steps:
            raise UserError(
                f"{self.title} is not a step of {run.experiment.name}, since sad_hpc has changed "
                "after the job was submitted: launch again"
            )
        return steps[self.title]

    def _run_stage(self) -> None:
        step = self._step()
        # The graph of all elements has more requirements than that of a launch which keeps results.
        for required in step.requires:
            if required.title in self.requires and not _is_complete(required):
                raise UserError(
                    f"{step.title} needs {required.title}, which is not complete: see "
                    f"`sad-hpc status {step.run.path}`, then launch again"
                )
        step.call(Path(self.results), self.replace)


def _is_complete(step: Step) -> bool:
    """Return whether the step is complete, after a wait for a slow network file system."""
    if step.complete:  # fast path: aggregate requires hundreds of steps
        return True
    record = None
    with suppress(UserError):  # without the record, only wait for the marker
        record = load_records(step.run).get(step.title)
    return not has_ended_badly(record) and step.is_seen_complete()


def queue_again_and_end(title: str, stop: Preempted, queue_again: Any) -> NoReturn:
    """End a process that stopped early, and requeue its job unless Slurm is ending it.

    Args:
        title: name of the stopped work, for messages.
        stop: the reason.
        queue_again: submitit's handler of USR2, if this is a job; it exits.

    Raises:
        UserError: the requeue failed.
    """
    if callable(queue_again) and must_queue_itself(stop.requeue):
        try:
            queue_again(signal.SIGUSR2, None)
        except UncompletedJobError:
            raise UserError(
                f"{title} reached its time limit too often: raise the stage's minutes or "
                "max_requeues in the cluster settings, and launch again"
            ) from None
        except (subprocess.SubprocessError, OSError) as error:
            raise UserError(
                f"{title} cannot be requeued ({error}): launch again to resume it"
            ) from None
    sys.exit(STOPPED)


@dataclass(frozen=True)
class MpiJob:
    """A step that runs as `ranks` processes under this machine's mpiexec."""

    job: StageJob
    ranks: int
    mpiexec: str

    def __call__(self) -> None:
        """Run all ranks; they write to this process's standard streams.

        They read the job from submitit's pickle, since it may exceed the 128 KiB that Linux allows
        for an argument.
        """
        pickle = str(JobEnvironment().paths.submitted_pickle)
        command = [self.mpiexec, "-n", str(self.ranks), sys.executable, "-u"]
        code = subprocess.call([*command, "-m", __name__, pickle])
        if code in SIGNALS:  # mpiexec's exit code if a rank was killed
            print(f"{ERROR_PREFIX}a rank {cause_of_death(code)}", flush=True)
        if code != 0:
            sys.exit(code)


def _end_before_teardown(code: Any) -> None:
    # Only in a process of a job; a test or a notebook must continue.
    program = getattr(sys.modules["__main__"], "__spec__", None)
    if program is not None and program.name in PROGRAMS and isinstance(code, int):
        # submitit's handler would requeue a finished job and change the exit code.
        signal.signal(signal.SIGUSR2, signal.SIG_IGN)
        end_before_teardown(code)


if __name__ == "__main__":  # one rank of an MpiJob
    with suppress(UserError):  # the job reports it
        world()  # first, so that a failed rank can end the others
    DelayedSubmission.load(sys.argv[1]).function.job()
