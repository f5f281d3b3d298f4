"""`sad-hpc launch`: run the incomplete steps of a run, on this machine or under Slurm."""

import shutil
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sad_hpc.errors import UserError, first_few
from sad_hpc.experiment.experiment import Element
from sad_hpc.experiment.sections import GPT2
from sad_hpc.launch.cancel import clusters_of, jobs_of
from sad_hpc.launch.cluster import ClusterConfig
from sad_hpc.launch.controller import visible_gpus
from sad_hpc.launch.dry_run import write_scripts
from sad_hpc.launch.graph import Step, graph
from sad_hpc.launch.local import run_locally, say
from sad_hpc.launch.memory_retry import steps_to_retry
from sad_hpc.launch.records import JobRecord, load_records
from sad_hpc.launch.slurm import QueueEntry, ask, squeue
from sad_hpc.launch.status import ACTIVE, BLOCKED_ADVICE, Kind, print_failures, step_states
from sad_hpc.launch.submission import submit_missing
from sad_hpc.storage.files import file_size, read_json, typed, wait_until_seen
from sad_hpc.storage.lock import held, is_held
from sad_hpc.storage.run import Run
from sad_hpc.storage.stage_folder import StageFolder

LOOK_SECONDS = 2.0
"""Time between two reads of the completion markers, which do not load Slurm."""


def launch(
    run: Run,
    config: Path,
    overrides: list[str],
    results: Path,
    cluster: ClusterConfig,
    dry_run: bool,
    wait: bool,
    replace: bool = False,
) -> int:
    """Run the incomplete steps, and return the exit code.

    Under Slurm the function returns after the submission unless `wait` is set.  Local execution
    always waits.

    Args:
        run: the run; complete steps are skipped.
        config: the experiment's file, for messages and scripts (`run` has its content).
        overrides: the config overrides, for the same purpose.
        results: the folder of aggregate's tables.
        cluster: the cluster settings.
        dry_run: only write and print the submission scripts.
        wait: return when all jobs have ended, also under Slurm.
        replace: also drop and replace results of other settings in results/<experiment>.

    Raises:
        UserError: Slurm is missing or refuses a job, another launcher works on the run, the disk
            is full, another user could change a folder, or results/<experiment> has results of
            other settings.
    """
    _check_results(run, results, replace)
    kept = _kept(run, results)
    arguments = [str(config), *overrides, "--runs", str(run.runs), "--results", str(results)]
    _check_architectures(run)
    _check_models(run, kept)
    _check_contexts(run)
    steps = graph(run, kept)
    _check_resources(steps, cluster)
    run.check_ownership()
    if dry_run:
        missing = _tables_are_missing(run, results, kept)
        write_scripts(run, steps, cluster, arguments, replace, missing)
        _say_skipped(steps)
        return 0
    # The lock keeps two launchers of one run from submitting the same steps.
    with held(run.path):
        if cluster.executor == "local":
            _check_nothing_is_queued(run)
        run.prepare(["sad-hpc", "launch", *arguments])
        if _tables_are_missing(run, results, kept):
            (run.aggregate().path / "done.json").unlink(missing_ok=True)
        if cluster.executor == "local":
            succeeded = run_locally(run, steps, cluster, results, replace)
        else:
            _say_skipped(steps)
            submit_missing(run, steps, cluster, results, replace)
            succeeded = True
    if cluster.executor == "slurm":
        print(f"show progress: sad-hpc status {run.path}", flush=True)
        if not wait:
            return 0
        succeeded = wait_for_jobs(run, steps)
        while again := steps_to_retry(steps, load_records(run), cluster):
            say("resubmitting jobs that were killed for memory, with more memory")
            with held(run.path):
                submit_missing(run, again, cluster, results, replace)
            succeeded = wait_for_jobs(run, steps)
    if succeeded and not run.experiment.family.has_environment:
        print(f"held-out losses: metrics.jsonl in the folders of {run.path / 'checkpoints'}")
        print("next:            `sad-hpc export` writes a policy for your own environment")
    elif succeeded:
        _print_results(results / run.experiment.name)
    return 0 if succeeded else 1


def _check_results(run: Run, results: Path, replace: bool) -> None:
    """Refuse to replace results of other settings without `--replace`; see `check_overwrite`."""
    if not replace and (results / run.experiment.name).exists():
        from sad_hpc.aggregate.results_folder import (
            check_overwrite,  # importing pandas takes a second
        )

        check_overwrite(run.experiment, results)


def _kept(run: Run, results: Path) -> set[Element]:
    """Return the (row, seed)s without an evaluation whose result the results folder has."""
    folder = results / run.experiment.name
    missing = {each for each in run.experiment.elements if run.evaluation(*each).done is None}
    if not missing or not folder.exists():
        return set()
    from sad_hpc.aggregate.stored import StoredResults  # importing pandas takes a second

    kept = missing & set(StoredResults(run.experiment, results).elements)
    if kept:
        print(
            f"{len(kept)} of {len(run.experiment.elements)} results are kept from {folder}, since "
            "their settings are the same; to make them again, move that folder away"
        )
    return kept


def _check_architectures(run: Run) -> None:
    """Check that models of other packages are models before jobs collect their data."""
    for row in run.experiment.by_row:
        architecture = run.experiment.of_row(row)[0].model.architecture
        if architecture != GPT2:
            from sad_hpc.model.architecture import model_class  # importing torch takes seconds

            model_class(architecture)


def _check_models(run: Run, kept: Collection[Element]) -> None:
    """Check that the other experiment's models exist, since no job of this run waits for them."""
    if run.experiment.pretrained is None:
        return
    missing = [
        f"{row} seed {seed}"
        for row, seed in run.experiment.elements
        if (row, seed) not in kept
        and run.evaluation(row, seed).done is None
        and run.checkpoint(row, seed).done is None
    ]
    if missing:
        source = Run(run.experiment.source, run.runs)
        raise UserError(
            f"{run.experiment.name} evaluates the models of {source.experiment.name}, but "
            f"{source.path} lacks {first_few(missing, 3)}: launch that experiment first, with the "
            "same --runs and the settings of 'pretrained' here"
        )


def _check_contexts(run: Run) -> None:
    """Check that imported contexts exist before collect needs them."""
    for own in run.with_datasets():
        experiment = own.experiment
        needed = experiment.data.imported_contexts or not experiment.family.has_environment
        if needed and own.data().done is None:
            from sad_hpc.dataset.imported import ImportedContexts  # importing Numba takes a second

            ImportedContexts.load(own.contexts, experiment)


def _check_resources(steps: list[Step], cluster: ClusterConfig) -> None:
    """Check the incomplete steps against the cluster's settings before any of them starts."""
    for step in steps:
        if step.complete:
            continue
        if cluster.executor == "local":
            resources = cluster.resources(step.stage)
            visible_gpus(resources.gpus * resources.ranks)
        if step.stage == "pretrain":
            step.run.experiment.pretrain.check_ranks(cluster.pretrain.ranks)


def _check_nothing_is_queued(run: Run) -> None:
    """Refuse local execution while Slurm has jobs of this run."""
    if shutil.which("squeue") is None:
        return
    for cluster in clusters_of(run):
        try:
            queue = squeue(cluster)
        except UserError:  # Slurm does not answer; the locks still keep a second writer out
            continue
        if jobs_of(run, queue):
            raise UserError(
                f"{run.path} has jobs in Slurm's queue: continue with --cluster slurm, or "
                f"`sad-hpc cancel {run.path}`"
            )


@dataclass(frozen=True)
class _Tables:
    """The part of a results folder's provenance.json that is read here."""

    signature: str
    files: dict[str, int | None] = field(default_factory=dict)
    """Sizes in bytes by file name."""
    stages: dict[str, dict[str, Any] | None] = field(default_factory=dict)
    """Provenance of the stages that were read, by `StageFolder.key`."""


def _tables_are_missing(run: Run, results: Path, kept: Collection[Element]) -> bool:
    """Return whether aggregate must run, although its marker may exist.

    True if the results folder has tables of another config or of other evaluations, or lacks a
    file.  Without an environment there are no tables.
    """
    if not run.experiment.family.has_environment:
        return False
    folder = results / run.experiment.name
    made = typed(_Tables, read_json(folder / "provenance.json"))
    if made is None or made.signature != run.experiment.aggregate_signature():
        return True
    if any(file_size(folder / name) != size for name, size in made.files.items()):
        return True
    return not all(
        element in kept or _is_as_read(run.evaluation(*element), made.stages)
        for element in run.experiment.elements
    )


def _is_as_read(evaluation: StageFolder, read: Mapping[str, Any]) -> bool:
    """Return whether an evaluation is complete, and the same one that the tables were made of."""
    marker = evaluation.done
    record = read.get(evaluation.key) or {}
    return marker is not None and record.get("finished") == marker["finished"]


def wait_for_jobs(run: Run, steps: list[Step]) -> bool:
    """Wait until no step is queued or running; return whether all are complete.

    Each change prints a line.  The reason for which jobs wait is printed once for all jobs that
    share it.  The end of the failed steps' logs is printed when all jobs have ended.  No job counts
    as lost before Slurm has answered once.  The function also waits for jobs that another launch
    submits meanwhile.
    """
    shown: dict[str, Kind] = {}
    heard = {"queued", "queued (Dependency)"}
    jobs: dict[str, QueueEntry] | None = None
    silence = ""
    while True:
        records = load_records(run)
        answer = ask(run, steps, records)
        if answer.error and answer.error != silence:
            # slurmctld may be restarting; the jobs continue.
            say(f"still waiting, although {answer.error}")
        silence = answer.error
        jobs = jobs if silence else answer.jobs
        states = step_states(steps, records, jobs)
        for state in states:
            kind = Kind.QUEUED if state.kind == Kind.BLOCKED else state.kind
            is_new_reason = kind == Kind.QUEUED and state.text not in heard
            if is_new_reason or shown.get(state.step.title, Kind.QUEUED) != kind:
                say(f"{state.step.name}: {state.text}")
            if is_new_reason:
                heard.add(state.text)
                if state.kind == Kind.BLOCKED:
                    say(BLOCKED_ADVICE)
            shown[state.step.title] = kind
        complete = all(state.kind == Kind.COMPLETE for state in states)
        if not any(state.kind in ACTIVE for state in states):
            if complete or not _launched_again(run, records):
                break
            continue
        time.sleep(LOOK_SECONDS)
    print_failures(states)
    return complete


def _launched_again(run: Run, records: Mapping[str, JobRecord]) -> bool:
    """Return whether another launch has recorded jobs since `records` were read.

    The function waits up to a minute for a launch that is submitting.
    """
    wait_until_seen(lambda: not is_held(run.path))
    return load_records(run) != records


def _say_skipped(steps: list[Step]) -> None:
    complete = sum(step.complete for step in steps)
    if complete:
        print(f"{complete} of {len(steps)} steps are complete and skipped")


def _print_results(folder: Path) -> None:
    from sad_hpc.aggregate.readme import headline_table

    print(headline_table(folder))
    print(f"table:        {folder / 'README.md'}")
    print(f"figures:      open {folder / 'online.png'} and the other PNG files beside it")
    print("next:         your own environment, see examples/README.md and docs/environments.md")
