"""MPI's start: what its ranks announce to the launcher."""

import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest

from sad_hpc.distributed import NETMOD, mpich_settings, torch_process
from sad_hpc.errors import SadError
from sad_hpc.holder import held
from sad_hpc.run import StageFolder
from tests.conftest import TINY

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


@pytest.fixture
def environment() -> Iterator[None]:
    """What a process exports for its ranks must not reach other tests."""
    with mock.patch.dict(os.environ):
        yield


def pretend_a_local_job(number: int, ranks: int, rank: int = 0) -> None:
    os.environ.pop("MASTER_PORT", None)
    os.environ["SUBMITIT_EXECUTOR"] = "local"
    job = {"JOB_ID": number, "NTASKS": ranks, "JOB_NUM_NODES": 1, "NODEID": 0}
    for name, value in (job | {"GLOBALID": rank, "LOCALID": rank}).items():
        os.environ[f"SUBMITIT_LOCAL_{name}"] = str(value)


def test_ranks_meet_where_no_outgoing_connection_can_be(environment: None) -> None:
    """Any of those may be in use, and a job that is given one fails for it."""
    limits = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()
    met = set()
    for number in range(100, 120):
        ports = set()
        for rank in range(2):
            pretend_a_local_job(number, 2, rank)
            assert torch_process().rank == rank
            ports.add(int(os.environ["MASTER_PORT"]))
        assert len(ports) == 1, "all ranks of a job"
        met |= ports
    assert len(met) > 17 and min(met) > 1024 and max(met) < max(32768, int(limits[0]))


def test_a_port_that_is_taken_is_one_line(tmp_path: Path) -> None:
    with socket.socket() as listener:
        listener.bind(("", 0))
        listener.listen()
        port = listener.getsockname()[1]
        rank = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "2", "MASTER_PORT": str(port)}
        command = [BIN / "sad-hpc", "pretrain", TINY, "--runs", tmp_path]
        done = subprocess.run(
            command, env={**os.environ, **rank}, capture_output=True, text=True, timeout=120
        )
    assert done.returncode != 0 and "Traceback" not in done.stderr
    assert f"the ranks cannot meet at 127.0.0.1:{port}" in done.stderr


def test_a_job_of_one_process_takes_a_free_port(environment: None) -> None:
    pretend_a_local_job(7, 1)
    ports = set()
    for _ in range(2):
        os.environ.pop("MASTER_PORT", None)
        assert torch_process().world_size == 1
        ports.add(os.environ["MASTER_PORT"])
        with socket.socket() as listener:  # as torch's store does
            listener.bind(("", int(os.environ["MASTER_PORT"])))
    assert len(ports) == 2, "both derived from the job's number"


NUMBERS = ("RANK", "SLURM_NTASKS", "MASTER_PORT")


@pytest.mark.parametrize("name", NUMBERS)
def test_a_number_that_is_none_is_named(environment: None, name: str) -> None:
    os.environ |= {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", name: "abc"}
    with pytest.raises(SadError, match=f"{name}='abc'"):
        torch_process()


def test_an_empty_number_is_none(environment: None, tmp_path: Path) -> None:
    os.environ |= dict.fromkeys([*NUMBERS, "SLURM_RESTART_COUNT"], "")
    assert torch_process().world_size == 1 and int(os.environ["MASTER_PORT"]) > 0
    folder = StageFolder("collect", tmp_path)
    with held(tmp_path):
        folder.heartbeat(1, 2, "blocks")
    assert folder.progress is not None and folder.progress["requeued"] == 0
    os.environ["SLURM_RESTART_COUNT"] = "abc"
    with pytest.raises(SadError, match="SLURM_RESTART_COUNT='abc'"), held(tmp_path):
        pass
