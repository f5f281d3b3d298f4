"""`sad-hpc launch`: run the incomplete steps of a run, on this machine or under Slurm."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sad_hpc.experiment.experiment import Element
from sad_hpc.launch.cluster import ClusterConfig
from sad_hpc.launch.dry_run import write_scripts
from sad_hpc.launch.graph import Step, graph
from sad_hpc.launch.local import run_locally, say
from sad_hpc.launch.memory_retry import steps_to_retry
from sad_hpc.launch.preconditions import (
    check_inputs,
    check_nothing_is_queued,
    check_resources,
    check_results,
)
from sad_hpc.launch.records import load_records
from sad_hpc.launch.submission import submit_missing
from sad_hpc.launch.waiting import launched_again, wait_for_jobs
from sad_hpc.storage.files import file_size
from sad_hpc.storage.json_files import read_json, typed
from sad_hpc.storage.lock import held
from sad_hpc.storage.run import Run
from sad_hpc.storage.stage_folder import StageFolder


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
    check_results(run, results, replace)
    kept = _kept(run, results)
    arguments = [str(config), *overrides, "--runs", str(run.runs), "--results", str(results)]
    check_inputs(run, kept)
    steps = graph(run, kept)
    check_resources(steps, cluster)
    run.check_ownership()
    if dry_run:
        missing = _tables_are_missing(run, results, kept)
        write_scripts(run, steps, cluster, arguments, replace, missing)
        _say_skipped(steps)
        return 0
    # The lock keeps two launchers of one run from submitting the same steps.
    with held(run.path):
        if cluster.executor == "local":
            check_nothing_is_queued(run)
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
        succeeded = _ended_well(run, steps, cluster, results, replace)
    if succeeded and not run.experiment.family.has_environment:
        print(f"held-out losses: metrics.jsonl in the folders of {run.path / 'checkpoints'}")
        print("next:            `sad-hpc export` writes a policy for your own environment")
    elif succeeded:
        _print_results(results / run.experiment.name)
    return 0 if succeeded else 1


def _ended_well(
    run: Run, steps: list[Step], cluster: ClusterConfig, results: Path, replace: bool
) -> bool:
    """Wait for all jobs, also those of retries with more memory; return whether all is done."""
    while True:
        succeeded, records = wait_for_jobs(run, steps), load_records(run)
        again = steps_to_retry(steps, records, cluster)
        if not again:
            return succeeded
        if launched_again(run, records):  # another launch retries them
            continue
        say("resubmitting jobs that were killed for memory, with more memory")
        with held(run.path):
            submit_missing(run, again, cluster, results, replace)


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
