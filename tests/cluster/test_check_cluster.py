"""slurm/check.sh on a real Slurm: a healthy cluster, and five injected faults."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.patience import HUNG

pytestmark = pytest.mark.cluster


def check(env: dict[str, str], runs: Path, *settings: str) -> tuple[int, dict[str, str]]:
    """Exit code of `doctor --submit`, and its lines by what they are about."""
    command = [Path(sys.executable).parent / "sad-hpc", "doctor", "--cluster", "slurm", "--submit"]
    done = subprocess.run(
        [*command, "--runs", runs, *settings],
        env=env, cwd=ROOT, capture_output=True, text=True, timeout=HUNG,
    )  # fmt: skip
    lines = [
        line for line in done.stdout.splitlines() if line[:6] in ("ok    ", "miss  ", "skip  ")
    ]
    return done.returncode, {line[6:20].strip(): line for line in lines}


def test_a_site_where_all_is_well(dev_cluster: dict[str, str], tmp_path: Path) -> None:
    code, lines = check(dev_cluster, tmp_path)
    assert code == 0 and len(lines) == 6, lines
    assert all(line.startswith("ok") for line in lines.values())
    # Any two nodes: Slurm may still clean up after the job before.
    assert re.search(r"2 ranks on node\d, node\d see each other", lines["MPI"])
    assert lines["GL"].count(" on node") == 2
    assert not list(tmp_path.glob("check-*/")), "the job has left its folder behind"


def test_each_thing_that_is_broken_has_its_line(
    dev_cluster: dict[str, str], tmp_path: Path
) -> None:
    runs, python = tmp_path / "runs", tmp_path / "python"
    # The second node has a file system of its own where the runs are.
    python.write_text(
        f"""#!/bin/sh
[ "$SLURM_PROCID" = 0 ] && exec {sys.executable} "$@"
exec unshare --mount sh -c 'mount -t tmpfs none {runs} && exec {sys.executable} "$@"' sh "$@"
"""
    )
    python.chmod(0o755)
    setup = "export GLOO_SOCKET_IFNAME=nope, export __EGL_VENDOR_LIBRARY_FILENAMES=/dev/null"
    code, lines = check(
        dev_cluster, runs, f"cluster.python={python}", f"cluster.setup=[{setup}]",
        "cluster.mpi=none", "cluster.sbatch={no-requeue: true}",
    )  # fmt: skip
    assert code == 1
    for name, remedy in {
        "MPI": "set cluster.mpi",
        "DeepSpeed": "GLOO_SOCKET_IFNAME",
        "shared files": "choose a --runs folder that all nodes share",
        "GL": "install libegl1",
        "requeue": "set JobRequeue=1",
    }.items():
        assert lines[name].startswith("miss") and remedy in lines[name], lines[name]
    assert lines["accounting"].startswith("ok")
