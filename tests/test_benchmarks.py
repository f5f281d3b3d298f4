"""The benchmark that is for another machine: it must work at its first try there."""

import json
import subprocess
import sys
from pathlib import Path

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"


def test_the_gpu_benchmark_runs_at_toy_size():
    done = subprocess.run(
        [sys.executable, str(BENCHMARKS / "gpu.py"), "--toy"],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    *configs, table = lines
    assert [line["name"].split()[1] for line in configs] == [
        *("paper_gaussian_bandit", "paper_darkroom", "paper_darkroom_large", "paper_miniworld")
    ]
    for line in configs:
        assert line["rate"] > 0 and 0 < line["mfu"] < 2
    assert (
        table["hours"] > 0
        and abs(table["hours"] - sum(c["hours"] for c in configs)) < 1e-2 * (table["hours"])
    )
