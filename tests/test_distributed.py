"""MPI's start: what its ranks announce to the launcher."""

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from sad_hpc.distributed import NETMOD, mpich_settings, torch_process

BIN = Path(sys.executable).parent

SLURM_LINE = 1024
"""Characters of a PMI line that Slurm's mpi/pmi2 reads."""


def announced(**variables: str) -> list[str]:
    """The lines with which two ranks, each as if on a node of its own, announce themselves."""
    code = "from sad_hpc.distributed import world; assert world().allreduce(1) == 2"
    command = [BIN / "mpiexec", "-verbose", "-n", "2", sys.executable, "-c", code]
    environment = {name: value for name, value in os.environ.items() if name != NETMOD}
    environment |= {"MPIR_CVAR_NOLOCAL": "1", **variables}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return re.findall(r"cmd=put .*", done.stdout + done.stderr)


def test_ranks_announce_themselves_in_lines_that_slurm_can_read() -> None:
    lines = announced()
    assert len(lines) >= 2
    assert max(map(len, lines)) < SLURM_LINE / 4


def test_the_users_choice_of_a_network_stands() -> None:
    assert max(map(len, announced(**{NETMOD: "ucx"}))) > SLURM_LINE / 4


@pytest.mark.parametrize(
    "library, expected",
    [
        ("MPICH Version: 5.0.2\nMPICH Device:\tch4:ucx ofi\n", {NETMOD: "ofi"}),
        ("MPICH Version: 4.2\nMPICH Device:\tch4:ofi\n", {NETMOD: "ofi"}),
        ("MPICH Version: 4.2\nMPICH Device:\tch4:ucx\n", {}),
        ("MPICH Version: 3.4\nMPICH Device:\tch3:nemesis\n", {}),
        ("Open MPI v5.0.3, package: ofi", {}),
    ],
)
def test_ofi_is_chosen_only_where_mpich_has_it(library: str, expected: dict[str, str]) -> None:
    assert mpich_settings(library, {}) == expected
    assert mpich_settings(library, {NETMOD: "ucx"}) == {}


def test_a_job_of_one_process_takes_a_free_port(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUBMITIT_EXECUTOR", "local")
    job = {"JOB_ID": 7, "NTASKS": 1, "JOB_NUM_NODES": 1, "NODEID": 0, "GLOBALID": 0, "LOCALID": 0}
    for name, value in job.items():
        monkeypatch.setenv(f"SUBMITIT_LOCAL_{name}", str(value))
    ports = set()
    for _ in range(2):
        monkeypatch.delenv("MASTER_PORT", raising=False)
        assert torch_process().world_size == 1
        ports.add(os.environ["MASTER_PORT"])
        with socket.socket() as listener:  # as torch's store does
            listener.bind(("", int(os.environ["MASTER_PORT"])))
    assert len(ports) == 2, "both derived from the job's number"
