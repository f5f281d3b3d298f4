"""Imports of users, and all commands, start without the packages that they do not need."""

import subprocess
import sys

import pytest

SLOW = {"torch", "numba", "deepspeed", "mpi4py", "matplotlib"}
"""Packages that take long to import, or start MPI."""


@pytest.mark.parametrize(
    ("statement", "absent"),
    [
        ("from sad_hpc import load_policy", SLOW),
        ("from sad_hpc.policies import load_policy", SLOW),
        ("import sad_hpc.results", SLOW),
        ("import sad_hpc.cli", SLOW),
        ("import sad_hpc.api", SLOW),
        ("import sad_hpc.collect.stage", SLOW - {"numba"}),
    ],
)
def test_slow_packages_are_not_imported(statement: str, absent: set[str]):
    code = f"import sys; {statement}; print(*sorted({absent} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
