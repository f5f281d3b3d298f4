"""Rank and world size, from MPI, Slurm, submitit or torch: the only place that asks."""

import os
import random
import re
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sad_hpc.errors import UserError

MPI_VARIABLES = ("PMI_SIZE", "PMIX_RANK", "OMPI_COMM_WORLD_SIZE", "MPI_LOCALNRANKS")
"""Set by mpiexec, or by srun with --mpi, for each process of an MPI job."""

OPEN_MPI = "OMPI_COMM_WORLD_SIZE"

LAUNCHERS = {
    "MPI_LOCALNRANKS": "PMI_SIZE",
    OPEN_MPI: OPEN_MPI,
    "TORCHELASTIC_RUN_ID": "WORLD_SIZE",
}
"""Launchers other than srun, by a variable that only they set: MPICH's mpiexec (Hydra), Open MPI's
and torchrun.  The value names the variable with the number of ranks."""

NETMOD = "MPIR_CVAR_CH4_NETMOD"
"""MPICH's choice of a network library, where it was built with several."""

MEETING_PORTS = range(20000, 32768)
"""Where ranks of several processes meet: below the ports that Linux gives to outgoing connections,
any of which may be in use."""

LAST_WORDS_SECONDS = 2.0
"""How long after an error the launcher may pass it on, and other ranks may report theirs."""


def environment_number(name: str, default: int) -> int:
    """The number in an environment variable; `default` if it is unset or empty.

    Raises:
        UserError: it holds something else.
    """
    text = os.environ.get(name) or str(default)
    try:
        return int(text)
    except ValueError:
        raise UserError(f"{name}={text!r} in the environment is no number: unset it") from None


def under_mpi() -> bool:
    """Whether an MPI launcher started this process."""
    return any(name in os.environ for name in MPI_VARIABLES)


def world() -> Any:
    """MPI's COMM_WORLD, or `SingleProcess` where no launcher started several processes.

    The first call initialises MPI.  It comes before any code of users runs: `abort_other_ranks`
    ends only ranks that have joined, and the others wait for the rest without end.

    Raises:
        UserError: MPI sees another number of ranks than were started.
    """
    communicator: Any = _initialised_mpi().COMM_WORLD if under_mpi() else SingleProcess()
    _compare_with_launcher(
        communicator.Get_size(),
        "srun --mpi=pmi2 sad-hpc ...` (set `mpi` in configs/cluster/*.yaml; see `srun --mpi=list)",
    )
    return communicator


def _initialised_mpi() -> Any:
    import mpi4py

    mpi4py.rc.initialize, mpi4py.rc.finalize = False, True
    from mpi4py import MPI

    if not MPI.Is_initialized():
        library = MPI.Get_library_version()
        if _launcher() == OPEN_MPI and "Open MPI" not in library:
            raise UserError(
                f"Open MPI's mpiexec started this, but mpi4py uses {library.split()[0]}: start it "
                f"by {sys.prefix}/bin/mpiexec"
            )
        os.environ.update(mpich_settings(library, os.environ))
        MPI.Init_thread()
    return MPI


def mpich_settings(library: str, environment: Mapping[str, str]) -> dict[str, str]:
    """The environment variables that make MPICH start reliably under `srun --mpi=pmi2`.

    MPICH over UCX announces each rank in lines of varying length, of which Slurm's PMI reads no
    more than 1024 characters: now and then a longer one aborts the job.  Over OFI one short line
    does, and handing out blocks needs no faster network.

    Args:
        library: what MPI says of itself, `MPI.Get_library_version()`.
        environment: whose choice of a network, if there is one, stands.
    """
    device = re.search(r"MPICH Device:\s*ch4:(.*)", library)
    if device is None or "ofi" not in device[1].split() or NETMOD in environment:
        return {}
    return {NETMOD: "ofi"}


def abort_other_ranks() -> None:
    """After an error on this rank: ends all, of which others would wait for this one for ever."""
    if "mpi4py.MPI" not in sys.modules:
        return
    from mpi4py import MPI

    if MPI.Is_initialized() and not MPI.Is_finalized() and MPI.COMM_WORLD.Get_size() > 1:
        time.sleep(LAST_WORDS_SECONDS)
        MPI.COMM_WORLD.Abort(1)


def _launcher() -> str | None:
    """The key of LAUNCHERS that started this process; the first, where one started another."""
    return next((key for key in LAUNCHERS if key in os.environ), None)


def _compare_with_launcher(world_size: int, command: str) -> None:
    """Refuses ranks that do not see each other.

    Within a Slurm job mpiexec starts its own processes by srun, and SLURM_NTASKS is then the number
    of nodes.

    Raises:
        UserError: there are more or fewer of them than were started.
    """
    name = LAUNCHERS.get(_launcher() or "", "SLURM_NTASKS")
    expected = environment_number(name, world_size)
    if world_size != expected:
        raise UserError(
            f"{world_size} rank(s) see each other but {name}={expected}: start it as `{command}`"
        )


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

    Raises:
        UserError: a variable that should say a number does not; or see `world`.
    """
    for name in ("MASTER_PORT", "SLURM_NTASKS"):
        if environment_number(name, 0) == 0:  # torch reads an empty one as a number
            os.environ.pop(name, None)
    read = _first_complete(
        ("SUBMITIT_LOCAL_GLOBALID", "SUBMITIT_LOCAL_LOCALID", "SUBMITIT_LOCAL_NTASKS"),
        ("RANK", "LOCAL_RANK", "WORLD_SIZE"),
        ("PMI_RANK", "MPI_LOCALRANKID", "PMI_SIZE"),
        ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_SIZE"),
        # Set by srun only; a batch script has SLURM_PROCID=0 as well, and nobody to wait for.
        ("SLURM_PROCID", "SLURM_LOCALID", "SLURM_STEP_NUM_TASKS"),
    )
    process = Process(*read) if read else Process(0, 0, 1)
    _compare_with_launcher(process.world_size, "srun --mpi=none sad-hpc ...")
    os.environ |= {
        "RANK": str(process.rank),
        "LOCAL_RANK": str(process.local_rank),
        "WORLD_SIZE": str(process.world_size),
    }
    host, port = _meeting_place()
    os.environ.setdefault("MASTER_ADDR", host)
    os.environ.setdefault("MASTER_PORT", str(port))
    return process


def _meeting_place() -> tuple[str, int]:
    """The first node, and a port that differs between its jobs: all ranks can derive them."""
    host, job = "127.0.0.1", os.environ.get("SUBMITIT_LOCAL_JOB_ID") or str(os.getppid())
    if "SLURM_STEP_NUM_TASKS" in os.environ:
        from sad_hpc.parallel.submitit_private import SlurmJobEnvironment

        host, job = SlurmJobEnvironment().hostnames[0], os.environ["SLURM_JOB_ID"]
    return host, meeting_port(job)


def meeting_port(job: str, number: int = 0) -> int:
    """A port that differs between jobs, and between those who meet within one."""
    first = random.Random(job).choice(MEETING_PORTS)
    return MEETING_PORTS[(MEETING_PORTS.index(first) + number) % len(MEETING_PORTS)]


def is_first_of_slurm_step() -> bool:
    """Whether this process is rank 0 of what srun started; one that srun did not start is, too."""
    return os.environ.get("SLURM_PROCID", "0") == "0"


def has_slurm_gpus() -> bool:
    """Whether Slurm gave this job GPUs of its node, and the user has not hidden them."""
    given = os.environ.get("SLURM_GPUS_ON_NODE", "0") not in ("", "0")
    return given and os.environ.get("CUDA_VISIBLE_DEVICES") not in ("", "-1")


def _first_complete(*names: tuple[str, str, str]) -> tuple[int, int, int] | None:
    for triple in names:
        if all(os.environ.get(name) for name in triple):
            rank, local_rank, size = (environment_number(name, 0) for name in triple)
            return rank, local_rank, size
    return None
