"""Rank and world size from each launcher, and the start of MPI."""

import os
import random
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest

from sad_hpc.errors import UserError
from sad_hpc.parallel.connections import meet
from sad_hpc.parallel.ranks import (
    MEETING_PORTS,
    MPI_VARIABLES,
    NETMOD,
    Process,
    forget_process_manager,
    mpich_settings,
    torch_process,
)
from sad_hpc.storage.lock import held
from sad_hpc.storage.stage_folder import StageFolder
from tests.conftest import TINY
from tests.patience import HUNG, SOON

BIN = Path(sys.executable).parent

SLURM_LINE = 1024
"""Characters of a PMI line that Slurm's mpi/pmi2 reads."""


def announced(**variables: str) -> list[str]:
    """The lines with which two ranks, each as if on a node of its own, announce themselves."""
    code = "from sad_hpc.parallel.ranks import world; assert world().allreduce(1) == 2"
    command = [BIN / "mpiexec", "-verbose", "-n", "2", sys.executable, "-c", code]
    environment = {name: value for name, value in os.environ.items() if name != NETMOD}
    environment |= {"MPIR_CVAR_NOLOCAL": "1", **variables}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=HUNG)
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
    """Variables that a process exports for its ranks must not reach other tests."""
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


def test_ranks_of_srun_meet_on_the_first_node(environment: None) -> None:
    for name in ("RANK", "PMI_RANK", "MASTER_ADDR", "MASTER_PORT", "SUBMITIT_LOCAL_GLOBALID"):
        os.environ.pop(name, None)
    os.environ |= {"SLURM_JOB_ID": "77", "SLURM_JOB_NODELIST": "gpu[3-4],cpu1", "SLURM_NTASKS": "4"}
    os.environ |= {"SLURM_PROCID": "1", "SLURM_LOCALID": "0", "SLURM_STEP_NUM_TASKS": "4"}
    assert torch_process() == Process(1, 0, 4)
    assert os.environ["MASTER_ADDR"] == "gpu3"
    assert int(os.environ["MASTER_PORT"]) in MEETING_PORTS


@pytest.mark.slow
def test_a_port_that_is_taken_is_one_line(tmp_path: Path) -> None:
    with socket.socket() as listener:
        listener.bind(("", 0))
        listener.listen()
        port = listener.getsockname()[1]
        rank = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "2", "MASTER_PORT": str(port)}
        command = [BIN / "sad-hpc", "pretrain", TINY, "--runs", tmp_path]
        done = subprocess.run(
            command, env={**os.environ, **rank}, capture_output=True, text=True, timeout=HUNG
        )
    assert done.returncode != 0 and "Traceback" not in done.stderr
    assert f"the ranks cannot meet at 127.0.0.1:{port}" in done.stderr


def test_a_process_alone_needs_nobody_at_its_port(environment: None) -> None:
    os.environ |= {"MASTER_ADDR": "nowhere.invalid", "MASTER_PORT": "1"}
    start = time.monotonic()
    meet(Process(0, 0, 1)).set("key", "value")
    assert time.monotonic() - start < SOON


MEET = """
import os, sys, time
from datetime import timedelta
from sad_hpc.parallel import connections, preemption
from sad_hpc.parallel.ranks import torch_process
connections.MEETING = timedelta(seconds=float(sys.argv[1]))
with preemption.watched():
    print("ready", flush=True)
    start = time.monotonic()
    try:
        connections.meet(torch_process())
    except Exception as error:
        print(f"{time.monotonic() - start} {type(error).__name__} {error}", flush=True)
    os._exit(0)
"""


def one_of_two(rank: int, seconds: float, host: str = "127.0.0.1") -> "subprocess.Popen[str]":
    """A rank whose other one never comes, and how long it waits for it."""
    port = str(random.choice(MEETING_PORTS))
    there = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": 2}
    process = subprocess.Popen(
        [sys.executable, "-c", MEET, str(seconds)],
        env=os.environ
        | {name: str(value) for name, value in there.items()}
        | {"MASTER_ADDR": host, "MASTER_PORT": port},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    return process


@pytest.mark.parametrize(
    "rank, host, words",
    [
        (0, "127.0.0.1", "UserError rank 1 did not reach 127.0.0.1:"),
        (1, "127.0.0.1", "UserError rank 0 does not answer at 127.0.0.1:"),
        (1, "nowhere.invalid", "UserError rank 0 does not answer at nowhere.invalid:"),
    ],
)
def test_a_rank_that_never_comes_is_named_in_time(rank: int, host: str, words: str) -> None:
    out, _ = one_of_two(rank, 0.5, host).communicate(timeout=HUNG)
    assert words in out and float(out.split()[0]) < SOON


@pytest.mark.parametrize("rank", [0, 1])
def test_a_signal_ends_the_wait_for_others(rank: int) -> None:
    process = one_of_two(rank, 600)
    time.sleep(0.3)
    process.terminate()
    out, _ = process.communicate(timeout=HUNG)
    assert "Preempted" in out and float(out.split()[0]) < SOON


STARTED = {
    "srun, whose ranks do not see each other": ({"SLURM_NTASKS": "2"}, 0),
    "srun": ({"SLURM_NTASKS": "2"}, 2),
    "mpiexec, which starts its processes by srun": ({"SLURM_NTASKS": "1"}, 2),
    "mpiexec, on less than the whole job": ({"SLURM_NTASKS": "4"}, 2),
    "mpiexec, within a process of Open MPI's": ({"OMPI_COMM_WORLD_SIZE": "3"}, 2),
}


@pytest.mark.parametrize("launcher", STARTED)
def test_ranks_are_as_many_as_their_launcher_started(launcher: str) -> None:
    variables, size = STARTED[launcher]
    code = f"from sad_hpc.parallel.ranks import world; assert world().Get_size() == {size}"
    command = [sys.executable, "-c", code]
    if size:
        command = [str(BIN / "mpiexec"), "-n", str(size), *command]
    environment = {name: os.environ[name] for name in os.environ if name not in MPI_VARIABLES}
    done = subprocess.run(
        command, env=environment | variables, capture_output=True, text=True, timeout=HUNG
    )
    assert (done.returncode == 0) is (size > 0), done.stderr
    assert size or "1 rank(s) see each other but SLURM_NTASKS=2: start it as `srun" in done.stderr


def test_open_mpis_mpiexec_with_another_library_is_one_line() -> None:
    """To MPICH each of its processes is a world of its own."""
    done = subprocess.run(
        [BIN / "sad-hpc", "collect", TINY],
        env=os.environ | {"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "1"},
        capture_output=True,
        text=True,
        timeout=HUNG,
    )
    assert done.returncode == 1 and len(done.stderr.splitlines()) == 1
    assert "Open MPI's mpiexec started this, but mpi4py uses MPICH: use " in done.stderr


LAUNCHERS_OF_TRAININGS = {
    "mpiexec": ("MPI_LOCALNRANKS", "PMI_RANK", "MPI_LOCALRANKID", "PMI_SIZE"),
    "Open MPI": ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_SIZE"),
    "torchrun": ("TORCHELASTIC_RUN_ID", "RANK", "LOCAL_RANK", "WORLD_SIZE"),
}


@pytest.mark.parametrize("launcher", LAUNCHERS_OF_TRAININGS)
def test_a_training_in_a_batch_script_may_have_any_launcher(
    environment: None, launcher: str
) -> None:
    *rank, size = LAUNCHERS_OF_TRAININGS[launcher]
    os.environ |= {"SLURM_NTASKS": "1", **dict.fromkeys(rank, "1"), size: "2"}
    assert torch_process() == Process(1, 1, 2)


NUMBERS = ("RANK", "SLURM_NTASKS", "MASTER_PORT")


@pytest.mark.parametrize("name", NUMBERS)
def test_a_number_that_is_none_is_named(environment: None, name: str) -> None:
    os.environ |= {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", name: "abc"}
    with pytest.raises(UserError, match=f"{name}='abc'"):
        torch_process()


def test_an_empty_number_is_none(environment: None, tmp_path: Path) -> None:
    os.environ |= dict.fromkeys([*NUMBERS, "SLURM_RESTART_COUNT"], "")
    assert torch_process().world_size == 1 and int(os.environ["MASTER_PORT"]) > 0
    folder = StageFolder("collect", tmp_path)
    with held(tmp_path):
        folder.heartbeat(1, 2, "blocks")
    assert folder.progress is not None
    os.environ["SLURM_RESTART_COUNT"] = "abc"
    with pytest.raises(UserError, match="SLURM_RESTART_COUNT='abc'"), held(tmp_path):
        pass


def test_a_launcher_forgets_its_shells_place_in_an_mpi_job(monkeypatch: pytest.MonkeyPatch):
    """`srun --pty bash` has one; ranks of mpiexec would take it for theirs, and end."""
    for name in ("PMI_SIZE", "PMIX_RANK", "PMI2_X", "PMIXED"):
        monkeypatch.setenv(name, "1")
    forget_process_manager()
    left = [name for name in os.environ if name.startswith("PMI")]
    assert left == ["PMIXED"]
