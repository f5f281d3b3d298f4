"""Local execution of a run's graph, wave after wave, with submitit's local executor."""

import itertools
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NoReturn

import psutil
from tqdm import tqdm

from sad_hpc.errors import UserError
from sad_hpc.launch.cluster import ClusterConfig
from sad_hpc.launch.executor import start_locally
from sad_hpc.launch.graph import STAGES, Step
from sad_hpc.launch.job import StageJob
from sad_hpc.launch.records import LOG_BYTES, JobRecord, load_records, save_records
from sad_hpc.parallel.preemption import handled
from sad_hpc.storage.progress import duration, progress_text
from sad_hpc.storage.run import Run
from sad_hpc.user_code import SILENCE_PREFIX

POLL_SECONDS = 0.25
LINE_SECONDS = 30.0
"""Time between two lines of progress without a terminal."""


def run_locally(
    run: Run, steps: list[Step], cluster: ClusterConfig, results: Path, replace: bool = False
) -> bool:
    """Run the incomplete steps, and return whether all steps are complete at the end.

    A failed step does not end the others; steps that need its output are not started.

    Raises:
        UserError: a job of an earlier launch still runs, or mpiexec is missing.
    """
    runner = LocalRunner(run, cluster, results, replace)
    # Like Ctrl-C, SIGTERM ends the jobs before the launcher.
    with handled(signal.SIGTERM, by=_exit):
        try:
            for (_, stage), wave in itertools.groupby(steps, key=lambda step: step.wave):
                runner.run_wave(list(wave), jobs_at_once(cluster, STAGES[stage]))
        finally:
            runner.end()
    return all(step.complete for step in steps)


def jobs_at_once(cluster: ClusterConfig, stage: str) -> int:
    """Return how many of a stage's jobs run at a time; cores and `pack` limit trainings."""
    resources = cluster.resources(stage)
    if stage == "evaluate":
        return cluster.array_parallelism
    if stage == "pretrain":
        room = len(os.sched_getaffinity(0)) // (resources.ranks * resources.cpus_per_rank)
        wanted = resources.pack if resources.gpus else cluster.array_parallelism
        return max(1, min(room, wanted))
    return 1


@dataclass
class LocalRunner:
    """Starts, watches and ends the jobs of one launch."""

    run: Run
    cluster: ClusterConfig
    results: Path
    replace: bool = False
    """True if aggregate may drop and replace results of other settings."""
    running: list["RunningStep"] = field(default_factory=list)

    def run_wave(self, steps: list[Step], limit: int) -> None:
        """Run the incomplete ones of `steps`, at most `limit` at a time."""
        waiting: list[Step] = []
        blocked: list[tuple[Step, Step]] = []
        # Read each marker once, since a later read may give another answer.
        for step in steps:
            if step.complete:
                say(f"{step.name}: complete, skipped")
            elif lacking := [need for need in step.requires if not need.complete]:
                blocked.append((step, lacking[0]))
            else:
                waiting.append(step)
        if blocked:
            reason = blocked[0][1]
            titles = ", ".join(step.folder.path.name for step, _ in blocked)
            stage = blocked[0][0].stage
            say(f"{stage} not started because {reason.title} is not complete: {titles}")
        while waiting or self.running:
            while waiting and len(self.running) < limit:
                self._start(waiting.pop(0))
            time.sleep(POLL_SECONDS)
            for each in [each for each in self.running if not each.still_runs()]:
                self.running.remove(each)

    def _start(self, step: Step) -> None:
        before = load_records(self.run).get(step.title)
        if before and before.runs_here:
            raise UserError(
                f"{step.name} still runs as process {before.id} of an earlier launch: wait for it "
                f"(sad-hpc status {self.run.path}) or end it (kill {before.id})"
            )
        work = StageJob.of(self.run, step, self.results, self.replace)
        job = start_locally(self.run, self.cluster, step.stage, work)
        record = JobRecord.of(job, "local")
        self.running.append(RunningStep(step, job, record))
        save_records(self.run, {step.title: record})
        say(f"{step.name}: started, log {record.log}")

    def end(self) -> None:
        """End the running jobs, if the launcher is interrupted."""
        ended = dict(each.end() for each in self.running)
        if ended:
            with suppress(UserError):  # only `status` needs the records
                save_records(self.run, ended)
            say("interrupted; run the same command again to resume")


class RunningStep:
    """A started job, with its progress bar on the terminal or its lines in a log."""

    def __init__(self, step: Step, job: Any, record: JobRecord) -> None:
        self._step, self._job, self._record = step, job, record
        self._started = self._printed = time.monotonic()
        self._log = JobLog(Path(record.log))
        shape = "{desc}: {bar}{postfix}"
        self._bar: tqdm[Any] = tqdm(desc=step.name, leave=False, bar_format=shape, disable=None)

    def still_runs(self) -> bool:
        """Show progress and return True, or show the outcome of an ended job and return False."""
        if not self._job.done():
            self._show_progress()
            return True
        self._bar.close()
        took = duration(time.monotonic() - self._started)
        if self._step.complete or (self._job.ended_well and self._step.is_seen_complete()):
            say(f"{self._step.name}: complete after {took}")
        else:
            say(f"{self._step.name}: FAILED after {took}; the end of its log:")
            tqdm.write(self._record.log_tail())
        return False

    def end(self) -> tuple[str, JobRecord]:
        """Kill the job's processes; each stage can resume from its files.

        Returns:
            the step's title, and a record of the interruption.
        """
        self._bar.close()
        processes: list[psutil.Process] = []
        with suppress(psutil.NoSuchProcess):
            controller = psutil.Process(int(self._job.job_id))
            processes = [controller, *controller.children(recursive=True)]
        for process in processes:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        return self._step.title, replace(self._record, interrupted=True)

    def _show_progress(self) -> None:
        for report in self._log.new_reports():
            say(f"{self._step.name}: {report}")
        progress = self._step.folder.progress_since(self._record.submitted)
        if progress is None:
            return
        text = progress_text(progress)
        self._bar.total, self._bar.n = progress["total"], progress["done"]
        self._bar.set_postfix_str(text)
        if self._bar.disable and text and time.monotonic() - self._printed >= LINE_SECONDS:
            self._printed = time.monotonic()
            say(f"{self._step.name}: {text}")


def _exit(number: int, _: object) -> NoReturn:
    sys.exit(128 + number)


def say(text: str) -> None:
    """Print a line with the time of day, above the progress bars."""
    tqdm.write(f"{time.strftime('%H:%M:%S')} {text}")
    sys.stdout.flush()


class JobLog:
    """A job's log, searched for reports of user code that does not return (`user_code.Watch`).

    Args:
        path: the log, which need not exist yet.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._read = path, 0

    def new_reports(self) -> Iterator[str]:
        """Yield the reports since the last call, without the program's name."""
        try:
            with self._path.open("rb") as log:
                self._read = log.seek(max(self._read, log.seek(0, 2) - LOG_BYTES))
                whole, end, _ = log.read().rpartition(b"\n")
        except OSError:
            return
        self._read += len(whole) + len(end)
        for line in whole.decode(errors="replace").splitlines():
            if line.startswith(SILENCE_PREFIX):
                yield line.removeprefix("sad-hpc: ")
