"""`sad-hpc`: the command line.  Each stage's code is imported only when its command runs."""

import argparse
import io
import json
import signal
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sad_hpc.errors import ERROR_PREFIX, ConfigError, SadError
from sad_hpc.parallel import preemption
from sad_hpc.parallel.preemption import Preempted
from sad_hpc.parallel.ranks import abort_other_ranks
from sad_hpc.parallel.standard_streams import keep_streams_open
from sad_hpc.parallel.teardown import end_before_teardown
from sad_hpc.storage.files import keep_others_from_writing
from sad_hpc.storage.provenance import version
from sad_hpc.theory.command import add_theory

if TYPE_CHECKING:
    from sad_hpc.storage.run import Run

GROUPS = {
    "pipeline": ("launch", "status", "doctor"),
    "stages": ("collect", "pretrain", "evaluate", "aggregate", "ranks"),
    "data and results": ("inspect", "verify", "report", "export", "import"),
    "theory": ("theory",),
}

EXAMPLES = {
    "collect": "mpiexec -n 2 sad-hpc collect configs/darkroom.yaml data.trust_horizon=10",
    "pretrain": "sad-hpc pretrain configs/quickstart.yaml --method SAD --seed 0",
    "evaluate": "sad-hpc evaluate configs/quickstart.yaml --method SAD --seed 0",
    "aggregate": "sad-hpc aggregate configs/quickstart.yaml --allow-missing",
    "ranks": "sad-hpc ranks collect configs/darkroom.yaml",
    "launch": "sad-hpc launch configs/darkroom.yaml --cluster slurm cluster.partition=cpu",
    "status": "sad-hpc status runs/darkroom",
    "report": "sad-hpc report --results results",
    "export": "sad-hpc export runs/darkroom --method SAD+ --seed 0 --weights my-policy",
    "import": "sad-hpc import configs/darkroom.yaml --minari my-datasets/darkroom-train-v0",
    "inspect": "sad-hpc inspect runs/darkroom --json",
    "verify": "sad-hpc verify runs/darkroom",
    "doctor": "sad-hpc doctor configs/darkroom.yaml --cluster slurm",
}

CLUSTER_PREFIX = "cluster."
"""Of overrides that are settings of the cluster."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; the exit code is 0 only if it did all that it was asked."""
    if isinstance(sys.stdout, io.TextIOWrapper):  # its encoding may lack the sign ±
        sys.stdout.reconfigure(errors="backslashreplace")
    parser = make_parser()
    # argparse takes positional arguments in one run only; overrides may also follow an option.
    options, rest = parser.parse_known_args(arguments)
    if any(word.startswith("-") for word in rest) or (rest and not hasattr(options, "overrides")):
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    if rest:
        options.overrides += rest
    if options.command is None:
        parser.print_help()
        return 2
    keep_others_from_writing()
    try:
        return options.run(options)
    except SadError as error:
        report_error(error, options.debug)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        report_error(SadError(f"{where}{error.strerror or error}"), options.debug)
    except Preempted as stop:
        # All ranks have agreed on it: there is none to end.
        print(f"sad-hpc: {stop}; all that was finished is saved: start it again", file=sys.stderr)
        return 128 + signal.SIGTERM
    except KeyboardInterrupt:
        print("sad-hpc: interrupted", file=sys.stderr)
    except Exception as error:
        report_error(error, debug=True)
    return _fail()


def run() -> int:
    """The console script: a process that runs `main` and ends."""
    keep_streams_open()
    code = main()
    end_before_teardown(code)
    return code


def report_error(error: BaseException, debug: bool) -> None:
    """One line for a fault that the user can mend; a traceback on request or for a bug."""
    if debug:
        traceback.print_exception(error)
    print(f"{ERROR_PREFIX}{error}", file=sys.stderr, flush=True)


def _fail() -> int:
    """Exit code 1; under MPI it first ends the other ranks, which would wait for ever."""
    sys.stdout.flush()
    abort_other_ranks()
    return 1


def make_parser() -> argparse.ArgumentParser:
    """The parser of all commands."""
    parser = argparse.ArgumentParser(
        prog="sad-hpc",
        usage="%(prog)s [-h] [--version] COMMAND ...",
        epilog="`sad-hpc COMMAND --help` says more about each.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"sad-hpc {version('sad_hpc')}")
    parser.set_defaults(command=None)
    commands = parser.add_subparsers(dest="command", prog="sad-hpc", help=argparse.SUPPRESS)

    def add(name: str, run: Callable[[argparse.Namespace], int], text: str) -> _Parser:
        command = commands.add_parser(
            name,
            description=text,
            epilog=f"example:\n  {EXAMPLES[name]}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        command.add_argument("--debug", action="store_true", help="show tracebacks of errors")
        command.set_defaults(run=run)
        return command

    _add_config(add("collect", _collect, "Make the dataset (start it with mpiexec or srun)."))
    for name, run, text in (
        ("pretrain", _pretrain, "Train the transformer of one (row, seed)."),
        ("evaluate", _evaluate, "Evaluate the trained transformer of one (row, seed)."),
    ):
        command = add(name, run, text)
        _add_config(command)
        _add_element(command)
    command = add("aggregate", _aggregate, "Make tables and figures from all evaluations.")
    _add_config(command)
    command.add_argument(
        "--allow-missing", action="store_true", help="go on without evaluations that are missing"
    )
    command = add("ranks", _ranks, "Start a stage in every rank of a Slurm job (slurm/*.sh).")
    command.add_argument("stage", choices=GROUPS["stages"][:4], metavar="STAGE")
    command.add_argument("arguments", nargs=argparse.REMAINDER, metavar="...")
    command = add("launch", _launch, "Run every stage that is not complete, through submitit.")
    _add_config(command)
    _add_cluster(command, "local")
    command.add_argument("--dry-run", action="store_true", help="print the submission scripts")
    command.add_argument("--wait", action="store_true", help="wait, and end with its exit code")
    command = add("status", _status, "Show each stage's state, progress and log.")
    command.add_argument("path", type=Path, metavar="RUN", help="a run's folder")
    command = add("report", _report, "Tables of all experiments beside the paper's, and one page.")
    command.add_argument("--results", type=Path, default=Path("results"), help="folder of tables")
    command = add("inspect", _inspect, "Show what a dataset holds.")
    command.add_argument("path", type=Path, metavar="PATH", help="a run, a dataset or a split")
    command.add_argument("--json", action="store_true", help="print JSON")
    command = add("verify", _verify, "Check every byte of a dataset, and its dynamics.")
    command.add_argument("path", type=Path, metavar="PATH", help="a run, a dataset or a split")
    command = add("export", _export, "Write a trained model, or episodes, for others to use.")
    command.add_argument("path", type=Path, metavar="RUN", help="a run, such as runs/darkroom")
    command.add_argument("--method", help="a row of the run's tables")
    command.add_argument("--seed", type=int, help="with --weights: the row's training seed")
    command.add_argument(
        "--split", choices=("train", "test"), help="with --minari: train by default"
    )
    what = command.add_mutually_exclusive_group(required=True)
    what.add_argument("--weights", type=Path, metavar="FOLDER", help="a new one, for the model")
    what.add_argument(
        "--minari", type=Path, metavar="DIR", help="folder of Minari datasets, for the episodes"
    )
    command = add("import", _import, "Take episodes that others have logged as training contexts.")
    _add_config(command)
    command.add_argument(
        "--minari", type=Path, required=True, metavar="DATASET", help="folder of a Minari dataset"
    )
    command = add("doctor", _doctor, "Check this machine, and say what to do about each miss.")
    command.add_argument(
        "overrides",
        nargs="*",
        metavar="CONFIG | cluster.KEY=VALUE",
        help="try a config's tasks, too; cluster settings",
    )
    _add_cluster(command, "local")
    command.add_argument("--runs", type=Path, default=Path("runs"), help="folder of runs")
    command.add_argument(
        "--submit", action="store_true", help="send slurm/check.sh, which tries two nodes together"
    )
    command.add_argument("--in-job", action="store_true", help=argparse.SUPPRESS)
    add_theory(commands)
    parser.description = _overview({name: c.description for name, c in commands.choices.items()})
    return parser


def _overview(texts: Mapping[str, str | None]) -> str:
    lines = [
        "In-context RL from random policies: collect, pretrain, evaluate, tabulate.",
        "\nexample:\n  sad-hpc launch configs/quickstart.yaml",
    ]
    for group, names in GROUPS.items():
        lines += [f"\n{group}:", *(f"  {name:10} {texts[name]}" for name in names)]
    return "\n".join(lines)


_Parser = argparse.ArgumentParser


def _add_config(command: _Parser) -> None:
    command.add_argument("config", type=Path, metavar="CONFIG", help="a YAML file of configs/")
    command.add_argument(
        "overrides", nargs="*", metavar="key.sub=value", help="replaces a value of the config"
    )
    command.add_argument("--runs", type=Path, default=Path("runs"), help="folder of runs")
    command.add_argument("--results", type=Path, default=Path("results"), help="folder of tables")


def _add_element(command: _Parser) -> None:
    command.add_argument("--method", help="such as SAD, or a row's name; all by default")
    command.add_argument("--seed", type=int, help="training seed; all of the config by default")
    command.add_argument(
        "--element", type=int, metavar="K", help="K-th (row, seed), as in a Slurm array"
    )
    command.add_argument(
        "--of", type=int, metavar="M", help="with --element K: K, K + M, K + 2 M, ..."
    )


def _add_cluster(command: _Parser, default: str) -> None:
    command.add_argument(
        "--cluster",
        default=default,
        help="local, slurm, a name in configs/cluster/ or a YAML file (default: %(default)s)",
    )


def _load_run(options: argparse.Namespace):  # type: ignore[no-untyped-def]
    from sad_hpc.experiment.load import load_experiment
    from sad_hpc.storage.run import Run

    return Run(load_experiment(options.config, options.overrides), options.runs)


def _elements(options: argparse.Namespace, run) -> list[tuple[str, int]]:  # type: ignore[no-untyped-def]
    """The (row, seed)s that a command line asks for."""
    elements = run.experiment.elements
    if options.of is not None:
        if options.element is None or not 0 <= options.element < options.of:
            raise ConfigError(f"--of {options.of}: needs --element K, 0 <= K < {options.of}")
        return elements[options.element :: options.of]  # none, where M is more than there are
    if options.element is not None:
        if not 0 <= options.element < len(elements):
            raise ConfigError(f"--element {options.element}: valid are 0 to {len(elements) - 1}")
        return [elements[options.element]]
    chosen = [
        (row, seed)
        for row, seed in elements
        if options.method in (None, row) and options.seed in (None, seed)
    ]
    if not chosen:
        raise ConfigError(
            f"--method {options.method} --seed {options.seed}: not in {options.config}; valid: "
            f"methods {'; '.join(run.experiment.rows)}; "
            f"seeds {', '.join(map(str, run.experiment.seeds))}"
        )
    return chosen


def _collect(options: argparse.Namespace) -> int:
    from sad_hpc.launch.job import collect_with_policy

    run = _load_run(options)
    with preemption.watched():
        for own in run.with_datasets():
            collect_with_policy(own)
    return 0


def _pretrain(options: argparse.Namespace) -> int:
    run = _load_run(options)
    elements = _elements(options, run)
    from sad_hpc.pretrain.stage import pretrain

    with preemption.watched():
        for row, seed in elements:
            own, method = run.of_row(row)
            pretrain(own, method, seed)
    return 0


def _evaluate(options: argparse.Namespace) -> int:
    run = _load_run(options)
    elements = _elements(options, run)
    from sad_hpc.evaluate.element import evaluate

    failed = False
    with preemption.watched():
        for row, seed in elements:
            own, method = run.of_row(row)
            try:
                evaluate(own, method, seed)
            except SadError as error:  # the others do not need it
                report_error(error, options.debug)
                failed = True
    return 1 if failed else 0


def _aggregate(options: argparse.Namespace) -> int:
    run = _load_run(options)
    from sad_hpc.aggregate import aggregate, headline_table

    folder = aggregate(run, options.results, allow_missing=options.allow_missing)
    print(headline_table(folder))
    print(f"tables and figures: {folder}")
    return 0


def _ranks(options: argparse.Namespace) -> int:
    from sad_hpc.launch.srun import become_srun

    become_srun(options.stage, options.arguments)


def _launch(options: argparse.Namespace) -> int:
    # `cluster.key=value` changes the cluster's settings, everything else the experiment's.
    cluster_overrides = [
        o.removeprefix(CLUSTER_PREFIX) for o in options.overrides if o.startswith(CLUSTER_PREFIX)
    ]
    options.overrides = [o for o in options.overrides if not o.startswith(CLUSTER_PREFIX)]
    run = _load_run(options)
    from sad_hpc.launch.cluster import load_cluster
    from sad_hpc.launch.pipeline import launch

    return launch(
        run,
        options.config,
        options.overrides,
        options.results,
        load_cluster(options.cluster, cluster_overrides),
        dry_run=options.dry_run,
        wait=options.wait,
    )


def _status(options: argparse.Namespace) -> int:
    from sad_hpc.launch.status import show_status

    return show_status(options.path)


def _report(options: argparse.Namespace) -> int:
    from sad_hpc.aggregate import overview

    print(f"all experiments: {overview(options.results)}")
    return 0


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
    from sad_hpc.storage.run import Run

    run = Run.of_folder(options.path)
    if options.method is not None and options.method not in run.experiment.rows:
        raise SadError(
            f"{options.path} has no row {options.method!r}; it has {', '.join(run.experiment.rows)}"
        )
    if options.minari is not None:
        return _export_episodes(options, run)
    if options.method is None or options.seed is None or options.split is not None:
        raise SadError("--weights needs --method and --seed, and has no --split")
    from sad_hpc.policies import export_policy

    export_policy(run, options.method, options.seed, options.weights)
    print(f"{options.weights}: sad_hpc.load_policy({str(options.weights)!r})")
    return 0


def _export_episodes(options: argparse.Namespace, run: "Run") -> int:
    from sad_hpc.dataset.interchange import ROOT, dataset_id, export_episodes
    from sad_hpc.dataset.reader import load_complete

    if options.seed is not None:
        raise SadError("--minari has no --seed: all training seeds share a dataset")
    own = run if options.method is None else run.of_row(options.method)[0]
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
    from sad_hpc.dataset.imported import import_contexts

    run = _load_run(options)
    name = import_contexts(options.minari, run.experiment, run.contexts)
    print(f"{run.contexts / name}: collect with data.contexts={name}")
    return 0


def _doctor(options: argparse.Namespace) -> int:
    from sad_hpc.launch.cluster import load_cluster

    configs = [word for word in options.overrides if "=" not in word]
    settings = [word for word in options.overrides if "=" in word]
    strange = [*configs[1:], *(word for word in settings if not word.startswith(CLUSTER_PREFIX))]
    if strange:
        raise SadError(f"{strange[0]!r}: doctor takes one CONFIG, and cluster.KEY=VALUE")
    cluster = load_cluster(options.cluster, [s.removeprefix(CLUSTER_PREFIX) for s in settings])
    if options.submit or options.in_job:
        from sad_hpc.launch.site import check_site, submit_check

        if options.in_job:
            return check_site(cluster, options.runs)
        return submit_check(cluster, ["--cluster", options.cluster, *settings], options.runs)
    from sad_hpc.launch.doctor import doctor

    return doctor(cluster, options.runs, Path(configs[0]) if configs else None)


if __name__ == "__main__":
    sys.exit(run())
