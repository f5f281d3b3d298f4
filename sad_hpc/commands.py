"""The commands of `sad-hpc`: each function runs one and returns its exit code.

A stage's code is imported only when its command runs.
"""

import argparse
import json
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from sad_hpc import api
from sad_hpc.errors import ERROR_PREFIX, ConfigError, UserError, printable
from sad_hpc.parallel import preemption

if TYPE_CHECKING:
    from sad_hpc.experiment.experiment import Element
    from sad_hpc.storage.run import Run

CLUSTER_PREFIX = "cluster."
"""Prefix of overrides that are cluster settings."""


def _load_run(options: argparse.Namespace) -> "Run":
    return api.load_run(options.config, *options.overrides, runs=options.runs)


def _existing_run(options: argparse.Namespace) -> "Run":
    """Return the run of a folder, or of a config with overrides."""
    from sad_hpc.storage.run import Run

    path: Path = options.path
    if path.is_file() or path.suffix in (".yaml", ".yml"):
        options.config = path
        return _load_run(options)
    if options.overrides:
        raise ConfigError(
            f"{options.overrides[0]!r}: settings need a config file, but {path} is not one; give "
            "the run's config instead"
        )
    return Run.of_folder(path)


def _elements(options: argparse.Namespace, run: "Run") -> list["Element"]:
    """Return the (row, seed)s that the command line selects."""
    elements = run.experiment.elements
    if options.of is not None:
        if options.element is None or not 0 <= options.element < options.of:
            raise ConfigError(f"--of {options.of}: needs --element K, 0 <= K < {options.of}")
        return elements[options.element :: options.of]  # may be empty if M is large
    if options.element is not None:
        if not 0 <= options.element < len(elements):
            raise ConfigError(f"--element {options.element}: valid are 0 to {len(elements) - 1}")
        return [elements[options.element]]
    chosen = [
        (row, seed)
        for row, seed in elements
        if options.row in (None, row) and options.seed in (None, seed)
    ]
    if not chosen:
        raise ConfigError(
            f"--row {options.row} --seed {options.seed}: not in {options.config}; valid: "
            f"rows {'; '.join(run.experiment.by_row)}; "
            f"seeds {', '.join(map(str, run.experiment.seeds))}"
        )
    return chosen


def _collect(options: argparse.Namespace) -> int:
    from sad_hpc.parallel.ranks import world

    world()  # before user code, so that a rank in which that fails can end the others
    run = _load_run(options)
    with preemption.watched():
        api.collect(run)
    return 0


def _pretrain(options: argparse.Namespace) -> int:
    run = _load_run(options)
    elements = _elements(options, run)
    with preemption.watched():
        api.train(run, elements)
    return 0


def _evaluate(options: argparse.Namespace) -> int:
    run = _load_run(options)
    elements = _elements(options, run)
    failures: list[UserError] = []

    def failed(error: UserError) -> None:
        report_error(error, options.debug)
        failures.append(error)

    with preemption.watched():
        api.evaluate(run, elements, failed)
    return 1 if failures else 0


def _aggregate(options: argparse.Namespace) -> int:
    run = _load_run(options)
    from sad_hpc.aggregate.readme import headline_table
    from sad_hpc.aggregate.stage import aggregate

    folder = aggregate(run, options.results, options.allow_missing, options.replace)
    print(headline_table(folder))
    print(f"tables and figures: {folder}")
    return 0


def _ranks(options: argparse.Namespace) -> int:
    from sad_hpc.launch.srun import become_srun

    become_srun(options.stage, options.arguments)


def _launch(options: argparse.Namespace) -> int:
    # `cluster.key=value` changes the cluster's settings, any other override the experiment's.
    cluster_overrides = [
        o.removeprefix(CLUSTER_PREFIX) for o in options.overrides if o.startswith(CLUSTER_PREFIX)
    ]
    options.overrides = [o for o in options.overrides if not o.startswith(CLUSTER_PREFIX)]
    run = _load_run(options)
    from sad_hpc.launch.cluster import load_cluster
    from sad_hpc.launch.pipeline import launch
    from sad_hpc.parallel.ranks import forget_process_manager

    forget_process_manager()
    return launch(
        run,
        options.config,
        options.overrides,
        options.results,
        load_cluster(options.cluster, cluster_overrides),
        dry_run=options.dry_run,
        wait=options.wait,
        replace=options.replace,
    )


def _show(options: argparse.Namespace) -> int:
    from sad_hpc.launch.show import shown

    print(shown(_load_run(options)))
    return 0


def _status(options: argparse.Namespace) -> int:
    from sad_hpc.launch.status import show_status

    return show_status(_existing_run(options))


def _cancel(options: argparse.Namespace) -> int:
    from sad_hpc.launch.cancel import cancel_jobs

    cancel_jobs(_existing_run(options))
    return 0


def _report(options: argparse.Namespace) -> int:
    from sad_hpc.aggregate.all_results import AllResults
    from sad_hpc.aggregate.comparison_text import comparison_csv, comparison_latex
    from sad_hpc.aggregate.documents import fill
    from sad_hpc.aggregate.report import (
        claim_tables,
        comparison_tables,
        draw_acting_rules,
        draw_experiments,
        overview,
    )

    if options.check:
        return _check_report(options)
    results = AllResults(options.results)
    if options.latex or options.csv:
        chosen = results.beside_the_paper
        tables, differences = comparison_tables(chosen), claim_tables(chosen)
        if options.csv:
            print(comparison_csv(tables), end="")
        for mode, table in tables.items() if options.latex else ():
            print(comparison_latex(table, mode, differences[mode]))
        return 0
    print(f"all experiments: {overview(results)}")
    if options.acting:
        for picture in draw_acting_rules(results):
            print(f"acting rules: {picture}")
    if options.rows:
        print(f"rows: {draw_experiments(results, options.rows)}")
    for document in options.fill:
        fill(document, results)
        print(f"{document}: tables and numbers written")
    return 0


def _check_report(options: argparse.Namespace) -> int:
    from sad_hpc.aggregate.stale import stale_pages

    stale = stale_pages(options.results, options.fill)
    for page in stale:
        print(f"{page}: does not follow from the results; `sad-hpc report` writes it again")
    if not stale:
        print("all pages follow from the results")
    return 1 if stale else 0


def _inspect(options: argparse.Namespace) -> int:
    from sad_hpc.dataset.verify import find_splits, inspect

    reports = [inspect(folder) for folder in find_splits(options.path)]
    if options.json:
        print(json.dumps(reports, indent=2))
        return 0
    for report in reports:
        for key, value in report.items():
            if isinstance(value, dict):
                print(f"{key}:")
                for name, entry in value.items():
                    print(f"  {name}: {entry}")
            else:
                print(f"{key}: {value}")
        print()
    return 0


def _verify(options: argparse.Namespace) -> int:
    from sad_hpc.dataset.verify import find_splits, verify

    faults = []
    for folder in find_splits(options.path):
        verdict = verify(folder)
        state = "FAULTY" if verdict.faults else "ok"
        print(f"{folder}: {state}, {verdict.rows:,} tasks, digest {verdict.digest}")
        faults += verdict.faults
    for fault in faults:
        print(f"{ERROR_PREFIX}{fault}", file=sys.stderr)
    return 1 if faults else 0


def _export(options: argparse.Namespace) -> int:
    run = _existing_run(options)
    if options.row is not None and options.row not in run.experiment.by_row:
        raise UserError(
            f"{options.path} has no row {options.row!r}; it has {', '.join(run.experiment.by_row)}"
        )
    if options.minari is not None:
        return _export_episodes(options, run)
    if options.row is None or options.seed is None or options.split is not None:
        raise UserError("--weights needs --row and --seed, and does not accept --split")
    from sad_hpc.policies.export import export_policy

    export_policy(run, options.row, options.seed, options.weights)
    print(f"{options.weights}: sad_hpc.load_policy({str(options.weights)!r})")
    return 0


def _export_episodes(options: argparse.Namespace, run: "Run") -> int:
    from sad_hpc.dataset.interchange import ROOT, dataset_id, export_episodes
    from sad_hpc.dataset.reader import load_complete

    experiment = run.experiment
    if options.seed is not None and experiment.seeds_share_data:
        raise UserError("--minari does not accept --seed: all training seeds share a dataset")
    seed = experiment.seeds[0] if options.seed is None else options.seed
    own, _ = run.of_element(options.row or next(iter(experiment.by_row)), seed)
    source = own.data().path / (options.split or "train")
    wanted = own.experiment.data_signature(), own.experiment.data_config()
    manifest, name = load_complete(source, *wanted), own.experiment.name
    count = export_episodes(source, manifest, name, options.minari)
    print(
        f"{count:,} episodes of {manifest.n_tasks:,} tasks: {ROOT}={options.minari}, and "
        f"minari.load_dataset({dataset_id(name, manifest.split)!r})"
    )
    return 0


def _import(options: argparse.Namespace) -> int:
    from sad_hpc.dataset.imported import import_contexts, import_logs

    run, sources = _load_run(options), options.minari
    has_environment = run.experiment.family.has_environment
    if options.task_key is None and len(sources) == 1 and has_environment:
        name = import_contexts(sources[0], run.experiment, run.contexts)
    else:
        logs = import_logs(sources, options.task_key, run.experiment, run.contexts)
        print(logs)
        name = logs.name
        if not has_environment:
            config = run.contexts / f"{name}.yaml"
            if not logs.write_config(config):
                print(f"{config} has other settings and is kept: remove it to import these")
            print(f"sad-hpc launch {config}")
            return 0
    print(f"{run.contexts / name}: collect with data.imported_contexts={name}")
    return 0


def _init(options: argparse.Namespace) -> int:
    from sad_hpc.shipped.files import copy_shipped

    written = copy_shipped(options.folder)
    print(f"{options.folder}: {len(written)} files of configs/ and slurm/ written")
    print("sad-hpc launch configs/quickstart.yaml")
    return 0


def _doctor(options: argparse.Namespace) -> int:
    from sad_hpc.launch.cluster import load_cluster

    configs = [word for word in options.overrides if "=" not in word]
    settings = [word for word in options.overrides if "=" in word]
    strange = [*configs[1:], *(word for word in settings if not word.startswith(CLUSTER_PREFIX))]
    if strange:
        raise UserError(f"{strange[0]!r}: doctor accepts one CONFIG and cluster.KEY=VALUE only")
    cluster = load_cluster(options.cluster, [s.removeprefix(CLUSTER_PREFIX) for s in settings])
    if options.submit or options.in_job:
        from sad_hpc.launch.check_cluster import check_cluster, submit_check

        if options.in_job:
            return check_cluster(cluster, options.runs)
        return submit_check(cluster, ["--cluster", options.cluster, *settings], options.runs)
    from sad_hpc.launch.check_machine import check_machine

    return check_machine(cluster, options.runs, Path(configs[0]) if configs else None)


def report_error(error: BaseException, debug: bool) -> None:
    """Print an error in one line, after its traceback if `debug` is set."""
    if debug:
        traceback.print_exception(error)
    print(f"{ERROR_PREFIX}{printable(str(error))}", file=sys.stderr, flush=True)


COMMANDS: dict[str, Callable[[argparse.Namespace], int]] = {
    "collect": _collect,
    "pretrain": _pretrain,
    "evaluate": _evaluate,
    "aggregate": _aggregate,
    "ranks": _ranks,
    "launch": _launch,
    "show": _show,
    "status": _status,
    "cancel": _cancel,
    "report": _report,
    "inspect": _inspect,
    "verify": _verify,
    "export": _export,
    "import": _import,
    "doctor": _doctor,
    "init": _init,
    "theory": lambda options: options.run(options),
}
"""The function of each command, by name."""
