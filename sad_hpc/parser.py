"""The command-line parser of `sad-hpc`: commands and options."""

import argparse
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from sad_hpc.storage.provenance import version
from sad_hpc.theory.command import add_theory

GROUPS = {
    "pipeline": ("launch", "show", "status", "cancel", "doctor", "init"),
    "stages": ("collect", "pretrain", "evaluate", "aggregate", "ranks"),
    "data and results": ("inspect", "verify", "report", "export", "import"),
    "theory": ("theory",),
}

EXAMPLES = {
    "collect": "mpiexec -n 2 sad-hpc collect configs/darkroom.yaml data.trust_horizon=10",
    "pretrain": "sad-hpc pretrain configs/quickstart.yaml --row SAD+ --seed 0",
    "evaluate": "sad-hpc evaluate configs/quickstart.yaml --row SAD+ --seed 0",
    "aggregate": "sad-hpc aggregate configs/quickstart.yaml --allow-missing",
    "ranks": "sad-hpc ranks collect configs/darkroom.yaml",
    "launch": "sad-hpc launch configs/darkroom.yaml --cluster slurm cluster.partition=cpu",
    "show": "sad-hpc show configs/darkroom.yaml data.trust_horizon=10",
    "status": "sad-hpc status runs/darkroom",
    "cancel": "sad-hpc cancel runs/darkroom",
    "report": "sad-hpc report --results results",
    "export": "sad-hpc export runs/darkroom --row SAD+ --seed 0 --weights my-policy",
    "import": "sad-hpc import configs/darkroom.yaml --minari my-datasets/darkroom-train-v0",
    "inspect": "sad-hpc inspect runs/darkroom --json",
    "verify": "sad-hpc verify runs/darkroom",
    "doctor": "sad-hpc doctor configs/darkroom.yaml --cluster slurm",
    "init": "sad-hpc init my-experiments",
}


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of all commands."""
    parser = argparse.ArgumentParser(
        prog="sad-hpc",
        usage="%(prog)s [-h] [--version] COMMAND ...",
        epilog="`sad-hpc COMMAND --help` describes a command.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"sad-hpc {version('sad_hpc')}")
    parser.set_defaults(command=None)
    subparsers = parser.add_subparsers(dest="command", prog="sad-hpc", help=argparse.SUPPRESS)

    def add(name: str, text: str) -> _Parser:
        command = subparsers.add_parser(
            name,
            description=text,
            epilog=f"example:\n  {EXAMPLES[name]}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        command.add_argument("--debug", action="store_true", help="show tracebacks of errors")
        return command

    _add_config(add("collect", "Make the dataset (start it with mpiexec or srun)."))
    for name, text in (
        ("pretrain", "Train the transformers of (row, seed)s."),
        ("evaluate", "Evaluate the trained transformers of (row, seed)s."),
    ):
        command = add(name, text)
        _add_config(command)
        _add_element(command)
    command = add("aggregate", "Make tables and figures from all evaluations.")
    _add_config(command, makes_tables=True)
    command.add_argument(
        "--allow-missing", action="store_true", help="continue without missing evaluations"
    )
    _add_replace(command)
    command = add("ranks", "Start a stage in every rank of a Slurm job (slurm/*.sh).")
    command.add_argument("stage", choices=GROUPS["stages"][:4], metavar="STAGE")
    command.add_argument("arguments", nargs=argparse.REMAINDER, metavar="...")
    command = add("launch", "Run every stage that is not complete, through submitit.")
    _add_config(command, makes_tables=True)
    _add_cluster(command)
    command.add_argument("--dry-run", action="store_true", help="print the submission scripts")
    command.add_argument(
        "--wait", action="store_true", help="wait for all jobs; exit code 1 if one fails"
    )
    _add_replace(command)
    _add_config(add("show", "Print the resolved config, its rows, and the work of each stage."))
    _add_run(add("status", "Show each stage's state, progress and log."))
    _add_run(add("cancel", "Cancel a run's jobs in Slurm; the next launch continues their work."))
    command = add("report", "Rebuild the pages of all experiments, an index and report.html.")
    command.add_argument("--results", type=Path, default=Path("results"), help="folder of tables")
    command.add_argument(
        "--fill", type=Path, nargs="*", default=[], metavar="DOCUMENT",
        help="write the tables between the marks of a Markdown document",
    )  # fmt: skip
    command.add_argument(
        "--check", action="store_true",
        help="write nothing; list the pages and documents (of --fill) that do not follow from the "
        "results.h5 files; exit code 1 if there are any",
    )  # fmt: skip
    command.add_argument(
        "--acting", action="store_true",
        help="also draw acting.png, the comparison of acting rules that auto made",
    )  # fmt: skip
    command.add_argument(
        "--rows", nargs="+", default=[], metavar="FOLDER",
        help="also draw rows.png, the headline numbers of these experiments' rows, in one picture",
    )  # fmt: skip
    only = command.add_mutually_exclusive_group()
    only.add_argument("--latex", action="store_true", help="only print the tables as LaTeX")
    only.add_argument("--csv", action="store_true", help="only print the tables as CSV")
    command = add("inspect", "Show the contents of a dataset.")
    command.add_argument("path", type=Path, metavar="PATH", help="a run, a dataset or a split")
    command.add_argument("--json", action="store_true", help="print JSON")
    command = add("verify", "Check the checksums and the dynamics of a dataset.")
    command.add_argument("path", type=Path, metavar="PATH", help="a run, a dataset or a split")
    command = add("export", "Export a trained model or a dataset's episodes.")
    _add_run(command)
    command.add_argument("--row", help="a row of the run's tables")
    command.add_argument("--seed", type=int, help="with --weights: the row's training seed")
    command.add_argument(
        "--split", choices=("train", "test"), help="with --minari: train by default"
    )
    what = command.add_mutually_exclusive_group(required=True)
    what.add_argument("--weights", type=Path, metavar="FOLDER", help="new folder for the model")
    what.add_argument(
        "--minari", type=Path, metavar="DIR", help="folder of Minari datasets, for the episodes"
    )
    command = add("import", "Import logged episodes as training contexts.")
    _add_config(command)
    command.add_argument(
        "--minari",
        type=Path,
        required=True,
        action="append",
        metavar="DATASET",
        help="folder of a Minari dataset; may be repeated. Without --task-key each of several is a "
        "task",
    )
    command.add_argument(
        "--task-key",
        metavar="KEY",
        help="value that tells the tasks apart, such as infos/task or a name in the episodes' "
        "metadata, for tasks without parameters",
    )
    command = add("doctor", "Check this machine, and print a fix for each miss.")
    command.add_argument(
        "overrides",
        nargs="*",
        default=[],
        metavar="CONFIG | cluster.KEY=VALUE",
        help="a config whose tasks to try, and cluster settings",
    )
    _add_cluster(command)
    command.add_argument("--runs", type=Path, default=Path("runs"), help="folder of runs")
    command.add_argument(
        "--submit", action="store_true", help="submit slurm/check.sh, which checks two nodes"
    )
    command.add_argument("--in-job", action="store_true", help=argparse.SUPPRESS)
    command = add("init", "Copy the package's configs/ and slurm/ to a folder.")
    command.add_argument(
        "folder", nargs="?", type=Path, default=Path("."), help="the current folder by default"
    )
    add_theory(subparsers)
    parser.description = _overview({name: c.description for name, c in subparsers.choices.items()})
    return parser


def dashes_hint(words: Sequence[str]) -> str:
    """Return a hint for the first setting that was given with dashes; empty without one.

    Args:
        words: unknown options of a command line.
    """
    from sad_hpc.experiment.experiment import Experiment  # the import takes half a second

    sections = {*Experiment.model_fields, "cluster"}
    for word in words:
        key, separator, value = word.lstrip("-").partition("=")
        if word.startswith("-") and key.partition(".")[0] in sections:
            setting = f"{key}={value if separator else 'VALUE'}"
            return f"; settings have no dashes: write {shlex.quote(setting)}"
    return ""


def _overview(texts: Mapping[str, str | None]) -> str:
    lines = [
        "In-context RL from random policies: collect, pretrain, evaluate, tabulate.",
        "\nexample:\n  sad-hpc launch configs/quickstart.yaml",
    ]
    for group, names in GROUPS.items():
        lines += [f"\n{group}:", *(f"  {name:10} {texts[name]}" for name in names)]
    return "\n".join(lines)


_Parser = argparse.ArgumentParser


def _add_config(command: _Parser, makes_tables: bool = False) -> None:
    """Add the arguments for a config; --results is accepted by all stages, for scripts of all."""
    command.add_argument("config", type=Path, metavar="CONFIG", help="a YAML file of configs/")
    _add_overrides(command)
    told = "folder of tables" if makes_tables else argparse.SUPPRESS
    command.add_argument("--results", type=Path, default=Path("results"), help=told)


def _add_run(command: _Parser) -> None:
    """Add the argument for an existing run: its folder, or a config with overrides."""
    command.add_argument(
        "path", type=Path, metavar="RUN | CONFIG", help="a run, such as runs/darkroom, or a config"
    )
    _add_overrides(command)


def _add_overrides(command: _Parser) -> None:
    command.add_argument(
        "overrides",
        nargs="*",
        default=[],  # otherwise argparse shows them as required
        metavar="key.sub=value",
        help="replace a value of the config",
    )
    command.add_argument("--runs", type=Path, default=Path("runs"), help="folder of runs")


def _add_replace(command: _Parser) -> None:
    command.add_argument(
        "--replace", action="store_true", help="replace results of other settings in --results"
    )


def _add_element(command: _Parser) -> None:
    command.add_argument("--row", help="a row such as SAD or SAD+; default: all rows")
    command.add_argument("--seed", type=int, help="a training seed; default: all seeds")
    command.add_argument(
        "--element", type=int, metavar="K", help="only the K-th (row, seed), as in a Slurm array"
    )
    command.add_argument(
        "--of", type=int, metavar="M", help="with --element K: elements K, K + M, K + 2 M, ..."
    )


def _add_cluster(command: _Parser) -> None:
    command.add_argument(
        "--cluster",
        default="local",
        help="local, slurm, a name in configs/cluster/ or a YAML file (default: %(default)s)",
    )
