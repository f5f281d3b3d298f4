"""Rank and world size, from MPI, Slurm, submitit or torch: the only place that asks."""

import itertools
import os
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from sad_hpc.errors import SadError

MPI_VARIABLES = ("PMI_SIZE", "PMIX_RANK", "OMPI_COMM_WORLD_SIZE", "MPI_LOCALNRANKS")
"""Set by mpiexec, or by srun with --mpi, for each process of an MPI job."""


def under_mpi() -> bool:
    """Whether an MPI launcher started this process."""
    return any(name in os.environ for name in MPI_VARIABLES)


def slurm_tasks() -> int:
    """Number of tasks that Slurm gave to this job step; 1 outside of Slurm."""
    return int(os.environ.get("SLURM_NTASKS", "1"))


def world() -> Any:
    """MPI's COMM_WORLD, or `SingleProcess` where no launcher started several processes.

    Raises:
        SadError: MPI sees another number of ranks than Slurm started.
    """
    if under_mpi():
        from mpi4py import MPI  # initialises MPI

        communicator: Any = MPI.COMM_WORLD
    else:
        communicator = SingleProcess()
    expected = slurm_tasks()
    if communicator.Get_size() != expected and "SLURM_NTASKS" in os.environ:
        raise SadError(
            f"MPI sees {communicator.Get_size()} rank(s) but SLURM_NTASKS={expected}: start it as "
            "`srun --mpi=pmi2 sad-hpc ...` (set `mpi` in configs/cluster/*.yaml; `srun --mpi=list` "
            "shows what this Slurm offers)"
        )
    return communicator


class SingleProcess:
    """What the collector uses of an MPI communicator, for one process without MPI."""

    def Get_rank(self) -> int:
        """The only rank is 0."""
        return 0

    def Get_size(self) -> int:
        """One rank."""
        return 1

    def bcast(self, value: Any, root: int = 0) -> Any:
        """The value itself."""
        return value

    def gather(self, value: Any, root: int = 0) -> list[Any]:
        """The only value."""
        return [value]

    def barrier(self) -> None:
        """Nobody to wait for."""


class SharedCounter:
    """Deals the numbers 0, 1, 2, ... to the ranks of a communicator, each to whoever asks first.

    A one-sided counter in rank 0's memory, so that no rank is spent on handing out work.  Making
    and freeing it are collective.
    """

    def __init__(self, communicator: Any) -> None:
        self._window: Any = None
        self._next = itertools.count()
        if communicator.Get_size() > 1:
            from mpi4py import MPI

            is_first = communicator.Get_rank() == 0
            self._window = MPI.Win.Allocate(8 if is_first else 0, comm=communicator)
            if is_first:
                self._window.tomemory().cast("q")[0] = 0
            communicator.barrier()

    def turns(self, count: int) -> Iterator[int]:
        """The numbers below `count` that fall to this rank."""
        while (turn := self._take()) < count:
            yield turn

    def free(self) -> None:
        """Releases the counter on all ranks."""
        if self._window is not None:
            self._window.Free()

    def _take(self) -> int:
        if self._window is None:
            return next(self._next)
        one, turn = np.ones(1, np.int64), np.empty(1, np.int64)
        self._window.Lock(0)
        self._window.Fetch_and_op(one, turn, 0)
        self._window.Unlock(0)
        return int(turn[0])


@dataclass(frozen=True)
class Process:
    """One process of a data-parallel job."""

    rank: int
    local_rank: int
    world_size: int

    @property
    def is_first(self) -> bool:
        """Rank 0 writes files and prints."""
        return self.rank == 0


def torch_process() -> Process:
    """This process's place in a data-parallel job; sets torch's rendezvous variables.

    A job's processes come from submitit (locally or under Slurm), from srun, from torchrun or
    from mpiexec; a process that none of them started is alone.
    """
    if "SUBMITIT_EXECUTOR" in os.environ:
        from submitit.helpers import TorchDistributedEnvironment

        environment = TorchDistributedEnvironment().export(set_cuda_visible_devices=False)
        return Process(environment.rank, environment.local_rank, environment.world_size)
    read = _first_complete(
        ("RANK", "LOCAL_RANK", "WORLD_SIZE"),
        ("PMI_RANK", "MPI_LOCALRANKID", "PMI_SIZE"),
        ("SLURM_PROCID", "SLURM_LOCALID", "SLURM_NTASKS"),
    )
    process = Process(*read) if read else Process(0, 0, 1)
    os.environ |= {
        "RANK": str(process.rank),
        "LOCAL_RANK": str(process.local_rank),
        "WORLD_SIZE": str(process.world_size),
    }
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", _port(process))
    return process


def _first_complete(*names: tuple[str, str, str]) -> tuple[int, int, int] | None:
    for triple in names:
        if all(name in os.environ for name in triple):
            rank, local_rank, size = (int(os.environ[name]) for name in triple)
            return rank, local_rank, size
    return None


def _port(process: Process) -> str:
    """A free port for one process; for several a port that all of them can derive."""
    if process.world_size > 1:
        return str(20000 + os.getppid() % 20000)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return str(listener.getsockname()[1])
