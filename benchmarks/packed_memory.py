"""Memory of one, two and four trainings that share Miniworld's dataset: writes packed_memory.md.

    python benchmarks/packed_memory.py [RUNS]

The training tasks have 3 GB of images.  Two cores render them in about twenty minutes, in RUNS
(default: a temporary folder).  What is already there is not rendered again.
"""

import sys
import tempfile
from pathlib import Path

from measure import command
from run import made_by
from windows import BIN, PAPER, holder, memory_of_node

from sad_hpc.storage.files import atomic_path

COLUMNS = ["trainings", "memory of the node, MiB", "times that of one"]
RENDER_SECONDS = 7200


def main(runs: Path) -> None:
    """Collect the dataset, measure, and write the table."""
    collection = [BIN / "sad-hpc", "collect", PAPER / "miniworld.yaml", "--runs", runs]
    command([BIN / "mpiexec", "-n", "2", *collection], RENDER_SECONDS)
    memory = {
        trainings: memory_of_node(trainings, holder("miniworld", runs, []))
        for trainings in (1, 2, 4)
    }
    rows = [
        [str(trainings), f"{held / 2**20:,.0f}", f"{held / memory[1]:.2f}"]
        for trainings, held in memory.items()
    ]
    with atomic_path(Path(__file__).parent / "packed_memory.md") as temporary:
        text = made_by("python benchmarks/packed_memory.py", COLUMNS, rows)
        temporary.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    if sys.argv[1:]:
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as folder:
            main(Path(folder))
