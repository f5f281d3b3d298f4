"""Rank and world size of this process, from MPI, Slurm, submitit or torch."""

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
"""Environment variables that mpiexec, or srun with --mpi, sets for each process of an MPI job."""

OPEN_MPI = "OMPI_COMM_WORLD_SIZE"

LAUNCHERS = {
    "MPI_LOCALNRANKS": "PMI_SIZE",
    OPEN_MPI: OPEN_MPI,
    "TORCHELASTIC_RUN_ID": "WORLD_SIZE",
}
"""Launchers other than srun: MPICH's mpiexec (Hydra), Open MPI's mpiexec and torchrun.  The key is
a variable that only this launcher sets, the value the variable with the number of ranks."""

NETMOD = "MPIR_CVAR_CH4_NETMOD"
"""Variable that selects MPICH's network library if it was built with several."""

MEETING_PORTS = range(20000, 32768)
"""Ports for the rendezvous of ranks, below the range that Linux uses for outgoing connections."""

LAST_WORDS_SECONDS = 2.0
"""Delay between an error and the end of the other ranks, so that all errors reach the logs."""


def environment_number(name: str, default: int) -> int:
    """Return the integer in an environment variable; `default` if it is unset or empty.

    Raises:
        UserError: the value is not an integer.
    """
    text = os.environ.get(name) or str(default)
    try:
        return int(text)
    except ValueError:
        raise UserError(f"{name}={text!r} in the environment is not a number: unset it") from None


def forget_process_manager() -> None:
    """Remove the variables by which srun tells a process its place in an MPI job.

    A shell within a job (`srun --pty bash`) has them, and MPI ranks that are started there would
    take them for their own.
    """
    for name in [name for name in os.environ if name.startswith(("PMI_", "PMI2_", "PMIX_"))]:
        del os.environ[name]


def under_mpi() -> bool:
    """Return whether an MPI launcher started this process."""
    return any(name in os.environ for name in MPI_VARIABLES)


def world() -> Any:
    """Return MPI's COMM_WORLD, or `SingleProcess` without an MPI launcher.

    The first call initializes MPI.  Call it before user code runs: `abort_other_ranks` ends only
    ranks that have initialized MPI; the others would wait indefinitely.

    Raises:
        UserError: MPI sees another number of ranks than the launcher started.
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
                f"Open MPI's mpiexec started this, but mpi4py uses {library.split()[0]}: use "
                f"{sys.prefix}/bin/mpiexec"
            )
        os.environ.update(mpich_settings(library, os.environ))
        MPI.Init_thread()
    return MPI


def mpich_settings(library: str, environment: Mapping[str, str]) -> dict[str, str]:
    """Return environment variables that make MPICH start reliably under `srun --mpi=pmi2`.

    Over UCX, MPICH announces each rank in lines of varying length.  Slurm's PMI reads at most 1024
    characters, and a longer line aborts the job.  Over OFI the line is short.  The assignment of
    blocks to ranks needs no faster network.

    Args:
        library: the output of `MPI.Get_library_version()`.
        environment: environment variables; a network that they select is kept.
    """
    device = re.search(r"MPICH Device:\s*ch4:(.*)", library)
    if device is None or "ofi" not in device[1].split() or NETMOD in environment:
        return {}
    return {NETMOD: "ofi"}


def abort_other_ranks() -> None:
    """End all MPI ranks after an error on this one, which the others would otherwise wait for."""
    if "mpi4py.MPI" not in sys.modules:
        return
    from mpi4py import MPI

    if MPI.Is_initialized() and not MPI.Is_finalized() and MPI.COMM_WORLD.Get_size() > 1:
        time.sleep(LAST_WORDS_SECONDS)
        MPI.COMM_WORLD.Abort(1)


def _launcher() -> str | None:
    """Return the key of the launcher that started this process; the first one if several did."""
    return next((key for key in LAUNCHERS if key in os.environ), None)


def _compare_with_launcher(world_size: int, command: str) -> None:
    """Refuse ranks that do not see each other.

    Within a Slurm job mpiexec starts its own processes by srun, and SLURM_NTASKS is then the number
    of nodes.

    Raises:
        UserError: the number of ranks differs from the number that the launcher started.
    """
    name = LAUNCHERS.get(_launcher() or "", "SLURM_NTASKS")
    expected = environment_number(name, world_size)
    if world_size != expected:
        raise UserError(
            f"{world_size} rank(s) see each other but {name}={expected}: start it as `{command}`"
        )


class SingleProcess:
    """A communicator of one process without MPI, with the methods that the collector uses."""

    def Get_rank(self) -> int:
        """Return 0, the only rank."""
        return 0

    def Get_size(self) -> int:
        """Return 1, the number of ranks."""
        return 1

    def bcast(self, value: Any) -> Any:
        """Return the value itself."""
        return value

    def gather(self, value: Any) -> list[Any]:
        """Return a list of the only value."""
        return [value]

    def barrier(self) -> None:
        """Return at once."""


@dataclass(frozen=True)
class Process:
    """The position of one process in a data-parallel job."""

    rank: int
    local_rank: int
    world_size: int

    @property
    def is_first(self) -> bool:
        """True if this is rank 0, which writes files and prints."""
        return self.rank == 0


def torch_process() -> Process:
    """Return this process's position in a data-parallel job, and set torch's rendezvous variables.

    A job's processes come from submitit (locally or under Slurm), from srun, from torchrun or
    from mpiexec.  Any other process is the only one.

    Raises:
        UserError: a variable should hold a number and does not; or see `world`.
    """
    for name in ("MASTER_PORT", "SLURM_NTASKS"):
        if environment_number(name, 0) == 0:  # torch reads an empty one as a number
            os.environ.pop(name, None)
    read = _first_complete(
        ("SUBMITIT_LOCAL_GLOBALID", "SUBMITIT_LOCAL_LOCALID", "SUBMITIT_LOCAL_NTASKS"),
        ("RANK", "LOCAL_RANK", "WORLD_SIZE"),
        ("PMI_RANK", "MPI_LOCALRANKID", "PMI_SIZE"),
        ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_SIZE"),
        # Only srun sets SLURM_STEP_NUM_TASKS; a batch script also has SLURM_PROCID=0 but is alone.
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
    """Return the first node and the job's port, which all ranks can derive."""
    host, job = "127.0.0.1", os.environ.get("SUBMITIT_LOCAL_JOB_ID") or str(os.getppid())
    if "SLURM_STEP_NUM_TASKS" in os.environ:
        from sad_hpc.parallel.submitit_private import SlurmJobEnvironment

        host, job = SlurmJobEnvironment().hostnames[0], os.environ["SLURM_JOB_ID"]
    return host, meeting_port(job)


def meeting_port(job: str, number: int = 0) -> int:
    """Return a port for a job; `number` distinguishes several rendezvous within one job."""
    first = random.Random(job).choice(MEETING_PORTS)
    return MEETING_PORTS[(MEETING_PORTS.index(first) + number) % len(MEETING_PORTS)]


def is_first_of_slurm_step() -> bool:
    """Return whether this process is rank 0 of its srun step, or was not started by srun."""
    return os.environ.get("SLURM_PROCID", "0") == "0"


def was_given_gpus() -> bool:
    """Return whether this job has GPUs by Slurm or a local launch, not hidden from CUDA."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if os.environ.get("SUBMITIT_EXECUTOR") == "local":  # a local launch names its jobs' GPUs there
        return bool(visible)
    return os.environ.get("SLURM_GPUS_ON_NODE", "0") not in ("", "0") and visible not in ("", "-1")


def _first_complete(*names: tuple[str, str, str]) -> tuple[int, int, int] | None:
    for triple in names:
        if all(os.environ.get(name) for name in triple):
            rank, local_rank, size = (environment_number(name, 0) for name in triple)
            return rank, local_rank, size
    return None
