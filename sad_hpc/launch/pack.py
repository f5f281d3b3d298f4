"""Packs: several steps of one rank each in one job (`cluster.STAGE.pack`).

A model of 40,000 weights uses one core, and many clusters allocate only whole nodes.  The job's
first process starts a process with its own log for each step, passes signals on, and waits for all.
A failed step does not end the others.  After a signal the job is requeued once, when all steps have
saved.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import psutil
from submitit import JobEnvironment

from sad_hpc.errors import ERROR_PREFIX
from sad_hpc.launch.controller import STOPPED, cause_of_death
from sad_hpc.launch.job import StageJob, queue_again_and_end
from sad_hpc.launch.srun import IGNORE_USR2
from sad_hpc.parallel import preemption
from sad_hpc.parallel.preemption import Preempted, handled
from sad_hpc.parallel.ranks import meeting_port
from sad_hpc.parallel.submitit_private import DelayedSubmission, JobPaths
from sad_hpc.storage.files import keep_others_from_writing


@dataclass(frozen=True)
class PackJob:
    """Steps as one callable that can be pickled."""

    jobs: tuple[StageJob, ...]

    def __call__(self) -> None:
        """Run all steps; exit with code 1 if one has failed."""
        keep_others_from_writing()
        queue_again = signal.getsignal(signal.SIGUSR2)
        with preemption.watched():
            members = [self._start(number) for number in range(len(self.jobs))]
            with _passed_on(members):
                codes = [member.wait() for member in members]
            stop = None
            if preemption.requested():
                # A member that has just started is ended by the signal.
                codes = [STOPPED if code == -signal.SIGTERM else code for code in codes]
                if STOPPED in codes:
                    stop = Preempted("the job was told to stop", preemption.requeue_requested())
        for job, code in zip(self.jobs, codes, strict=True):
            if code not in (0, STOPPED):
                reason = cause_of_death(-code) if code < 0 else f"ended with exit code {code}"
                print(f"{ERROR_PREFIX}{job.title} {reason}; see its log", flush=True)
        if stop is not None:
            queue_again_and_end("the pack", stop, queue_again)
        if any(codes):
            sys.exit(1)

    def checkpoint(self) -> DelayedSubmission:
        """Return the submission that submitit requeues; see `StageJob.checkpoint`."""
        return DelayedSubmission(self)

    def _start(self, number: int) -> "subprocess.Popen[bytes]":
        paths = JobEnvironment().paths
        environment = os.environ | {
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(meeting_port(os.environ["SLURM_JOB_ID"], number)),
        }
        command = ["sh", "-c", IGNORE_USR2, sys.executable, "-u", "-m", __name__]
        with member_log(paths.folder, JobEnvironment().job_id, number).open("ab") as log:
            process = subprocess.Popen(
                [*command, str(paths.submitted_pickle), str(number)],
                env=environment,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        _pin(process.pid, number, len(self.jobs))
        return process


def member_log(folder: Path, job: str, number: int) -> Path:
    """Return the log of a pack's step; the log of rank 0 is that of the job's first process."""
    return Path(JobPaths(folder, job, number + 1).stdout)


def _pin(process: int, number: int, members: int) -> None:
    """Bind a member to its share of cores if Slurm has bound the job to the requested cores.

    Otherwise other jobs may use the same cores, and the kernel's scheduler decides.
    """
    cores = sorted(os.sched_getaffinity(0))
    asked = int(os.environ.get("SLURM_CPUS_PER_TASK") or 0)
    each = asked // members
    if each and len(cores) == asked:
        try:
            psutil.Process(process).cpu_affinity(cores[number * each : (number + 1) * each])
        except psutil.NoSuchProcess:
            return


@contextmanager
def _passed_on(members: "list[subprocess.Popen[bytes]]") -> Iterator[None]:
    """Pass this process's preemption signals on to the members within this block."""
    note = signal.getsignal(signal.SIGTERM)
    assert callable(note)

    def pass_on(received: int, frame: FrameType | None) -> None:
        note(received, frame)
        for member in members:
            member.send_signal(received)  # has no effect on an ended process

    with handled(*preemption.SIGNALS, by=pass_on):
        if preemption.requested():  # a signal arrived while they were started
            for member in members:
                member.send_signal(signal.SIGTERM)
        yield


if __name__ == "__main__":  # one member
    pack = DelayedSubmission.load(sys.argv[1]).function
    pack.jobs[int(sys.argv[2])]()
