"""`make bench`: every measurement as a line of JSON, and a table of them in `last_run.md`."""

import platform
from pathlib import Path
from typing import Any

import measure
import psutil
from collection import bench_collection
from effects import bench_kernel_effects
from environments import bench_environments
from evaluation import bench_evaluation
from kernels import bench_kernels
from quality import bench_quality
from rendering import bench_rendering
from rounds import bench_rounds
from training import bench_training
from windows import bench_window_memory, bench_window_steps

from sad_hpc.aggregate.formats import markdown_table
from sad_hpc.storage.files import atomic_path
from sad_hpc.storage.provenance import provenance

HERE = Path(__file__).parent


def main() -> None:
    """Runs all benchmarks, one after another."""
    try:
        bench_kernels()
        bench_rounds()
        bench_rendering()
        bench_environments()
        bench_collection()
        bench_evaluation()
        bench_kernel_effects()
        bench_quality()
        bench_window_memory()
        bench_training()  # from here on, in a process group
        bench_window_steps()
    finally:
        with atomic_path(HERE / "last_run.md") as temporary:
            temporary.write_text(page(measure.LINES), encoding="utf-8")


def page(lines: list[dict[str, Any]]) -> str:
    """The table of a run, and the machine that it ran on."""
    columns = ["measurement", "seconds", "rate", "peak MiB", "reference", "ratio", "target", ""]
    return made_by("make bench", columns, [row(line) for line in lines])


def made_by(command: str, columns: list[str], rows: list[list[str]]) -> str:
    """A page with the table that a command has made, and the machine that it ran on."""
    return f"Made by `{command}` {machine()}\n\n{markdown_table(columns, rows)}\n"


def machine() -> str:
    """The commit, the machine and the versions of a run, as the end of a sentence."""
    made = provenance()
    named = (
        line.split(":")[1].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    )
    model = next(named, platform.machine())
    memory = psutil.virtual_memory().total / 2**30
    return (
        f"at commit {made['commit']}{' (changed)' * bool(made['dirty'])}, "
        f"{made['time'][:10]}, on {made['cpus']} cores of {model}, {memory:.0f} GiB, Python "
        f"{made['python']}, torch {made['libraries']['torch']}, numba {made['libraries']['numba']}."
    )


def row(line: dict[str, Any]) -> list[str]:
    """One measurement; the last cell says whether it meets its target."""
    seconds, wanted = line.get("target_seconds"), line.get("target")
    if seconds is not None:
        target, met = f"{seconds:g} s", line["seconds"] <= seconds
    else:
        target, met = f"{wanted:g}" if wanted else "", wanted is None or line["ratio"] >= wanted
    verdict = ("met" if met else "missed") if target else ""
    return [
        line["name"],
        f"{line['seconds']:.4g}",
        f"{line['rate']:,.4g} {line['unit']}/s",
        f"{line['peak_mib']:.0f}" if "peak_mib" in line else "",
        line.get("reference", ""),
        f"{line['ratio']:.4g}" if "ratio" in line else "",
        target,
        verdict,
    ]


if __name__ == "__main__":
    main()
