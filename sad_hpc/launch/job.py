"""What runs inside a job: one step of the graph, in every process of the job."""

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
from sad_hpc.launch.slurm import has_ended_badly, lets_this_job_run
from sad_hpc.parallel import preemption
from sad_hpc.parallel.preemption import Preempted
from sad_hpc.parallel.ranks import abort_other_ranks, is_first_of_slurm_step, world
from sad_hpc.parallel.submitit_private import PROGRAM, DelayedSubmission, UncompletedJobError
from sad_hpc.parallel.teardown import end_before_teardown
from sad_hpc.storage.files import keep_others_from_writing
from sad_hpc.storage.run import Run

SIGNALS = (signal.SIGKILL, signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGILL)


@dataclass(frozen=True)
class StageJob:
    """A step as a callable that can be pickled.

    It holds plain values: the experiment as it was resolved at submission, so that a config file
    that is edited while the job waits changes nothing.
    """

    title: str
    experiment: Mapping[str, Any]
    runs: str
    results: str
    replace: bool = False
    """Whether aggregate may drop and replace results of other settings."""

    @classmethod
    def of(cls, run: Run, step: Step, results: Path, replace: bool = False) -> "StageJob":
        """The job of one step; its paths do not depend on the working directory."""
        experiment = run.experiment.model_dump(mode="json")
        runs, tables = str(run.runs.absolute()), str(results.absolute())
        return cls(step.title, experiment, runs, tables, replace)

    def __call__(self) -> None:
        """Runs the stage; a failure ends all processes of the job, with exit code 1.

        A signal stops it where it can go on later, and queues the job again unless Slurm is ending
        it.
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
                print(f"{self.title}: {stop}; all that was finished is saved", flush=True)
                self._leave(stop, queue_again)
        except Exception as error:
            # SystemExit passes through: submitit's requeue is one.
            if not isinstance(error, UserError | OSError):
                traceback.print_exc()
            print(f"{ERROR_PREFIX}{printable(str(error))}", file=sys.stderr, flush=True)
            sys.stdout.flush()
            # Of MPI; those of torch are ended by srun, or by the controller of a local job.
            abort_other_ranks()
            sys.exit(1)

    def checkpoint(self) -> DelayedSubmission:
        """What submitit queues again at the time limit or a preemption: each stage resumes."""
        return DelayedSubmission(self)

    def _step(self) -> Step:
        run = Run(parse_experiment(dict(self.experiment), self.title), Path(self.runs))
        steps = {step.title: step for step in graph(run)}
        if self.title not in steps:
            raise UserError(
                f"{self.title} is no step of {run.experiment.name} as this sad_hpc reads it (it "
                "has changed since the job was submitted): launch again"
            )
        return steps[self.title]

    def _leave(self, stop: Preempted, queue_again: Any) -> NoReturn:
        """Ends a stage that stopped early.

        Args:
            stop: why.
            queue_again: submitit's handler of USR2, if this is a job; it exits by itself.

        Raises:
            UserError: the job was to be queued again, and could not.
        """
        if not is_first_of_slurm_step():
            sys.exit(0)  # Rank 0 alone queues the job, and must not be killed for another's exit.
        queue_again_and_end(self.title, stop, queue_again)

    def _run_stage(self) -> None:
        step = self._step()
        for required in step.requires:
            if not _is_complete(required):
                raise UserError(
                    f"{step.title} cannot start: {required.title} is not complete; see "
                    f"`sad-hpc status {step.run.path}`, then launch again"
                )
        _call_stage(step, Path(self.results), self.replace)


def _is_complete(step: Step) -> bool:
    """Whether the step is complete; a network file system may take a while to show that."""
    if step.complete:  # the tables need hundreds of steps, and mostly all of them are
        return True
    record = None
    with suppress(UserError):  # the disk that does not show this may not show the other, either
        record = load_records(step.run).get(step.title)
    return not has_ended_badly(record) and step.is_seen_complete()


def queue_again_and_end(title: str, stop: Preempted, queue_again: Any) -> NoReturn:
    """Ends a process that stopped early, and queues its job again unless Slurm is ending that.

    Args:
        title: what has stopped, for messages.
        stop: why.
        queue_again: submitit's handler of USR2, if this is a job; it exits by itself.

    Raises:
        UserError: the job was to be queued again, and could not.
    """
    if callable(queue_again) and (stop.requeue or lets_this_job_run()):
        try:
            queue_again(signal.SIGUSR2, None)
        except UncompletedJobError:
            raise UserError(
                f"{title} reached its time limit too often: raise the stage's minutes, or "
                "max_requeues, in the cluster settings, and launch again"
            ) from None
        except (subprocess.SubprocessError, OSError) as error:
            raise UserError(
                f"{title} cannot be queued again ({error}): launch again, which goes on from here"
            ) from None
    sys.exit(STOPPED)


@dataclass(frozen=True)
class MpiJob:
    """A step as `ranks` processes under this machine's mpiexec."""

    job: StageJob
    ranks: int
    mpiexec: str

    def __call__(self) -> None:
        """Runs all ranks to their end; their output goes where this process's output goes.

        They find the job where submitit has pickled it: as an argument it may be too long for
        Linux, which gives 128 KiB.
        """
        pickle = str(JobEnvironment().paths.submitted_pickle)
        command = [self.mpiexec, "-n", str(self.ranks), sys.executable, "-u"]
        code = subprocess.call([*command, "-m", __name__, pickle])
        if code in SIGNALS:  # what mpiexec ends with if a rank was killed
            print(f"{ERROR_PREFIX}a rank {cause_of_death(code)}", flush=True)
        if code != 0:
            sys.exit(code)


def collect_with_policy(run: Run) -> None:
    """Collects, from the second round on with the model whose policy label rollouts follow."""
    from sad_hpc.collect.stage import collect

    if run.round_before is None:
        collect(run)
        return
    from sad_hpc.evaluate.rollout_policy import rollout_policy

    collect(run, rollout_policy(run.round_before))


def _call_stage(step: Step, results: Path, replace: bool) -> None:
    # Imported here: each stage needs libraries that the others, and the launcher, do without.
    if step.stage == "collect":
        collect_with_policy(step.run)
    elif step.stage == "aggregate":
        from sad_hpc.aggregate.stage import aggregate

        aggregate(step.run, results, replace=replace)
    else:
        assert step.element is not None
        if step.stage == "pretrain":
            from sad_hpc.pretrain.stage import pretrain

            pretrain(step.run, *step.element)
        else:
            from sad_hpc.evaluate.stage import evaluate

            evaluate(step.run, *step.element)


def _end_before_teardown(code: Any) -> None:
    # A process that submitit started ends with the job; a test, or a notebook, goes on.
    program = getattr(sys.modules["__main__"], "__spec__", None)
    if program is not None and program.name == PROGRAM and isinstance(code, int):
        # There is nothing left to be queued again, and submitit's handler would change the code.
        signal.signal(signal.SIGUSR2, signal.SIG_IGN)
        end_before_teardown(code)


if __name__ == "__main__":  # one rank of an MpiJob
    with suppress(UserError):  # which the job reports
        world()  # first: a rank that fails can then end the others
    DelayedSubmission.load(sys.argv[1]).function.job()
