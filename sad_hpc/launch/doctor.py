"""`sad-hpc doctor`: what this machine has, what it lacks, and what to do about each miss."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from sad_hpc.errors import SadError
from sad_hpc.launch.cluster import ClusterConfig
from sad_hpc.launch.executor import find_mpiexec, submission_environment
from sad_hpc.storage.files import has_locks
from sad_hpc.tasks.miniworld.gl import DEBIAN_PACKAGES

GIB = 2**30
FREE_DISK_GIB = 5
"""The paper's largest dataset here, checkpoints and evaluations fit into it."""
SHARED_MEMORY_GIB = 0.25
PROBE_SECONDS = 20


@dataclass(frozen=True)
class Check:
    """The outcome of one check."""

    name: str
    verdict: str
    """ok; miss: needed and not there; skip: not needed for what was asked."""
    detail: str


def doctor(cluster: ClusterConfig | None, runs: Path = Path("runs")) -> int:
    """Checks this machine, a line for each check; returns 1 if something needed is missing.

    Args:
        cluster: what the pipeline shall run on; without Slurm in it, a missing Slurm is no miss.
        runs: the folder that runs would be written to.
    """
    with_slurm = cluster is not None and cluster.executor == "slurm"
    checks: list[Callable[[], Check]] = [
        _mpi,
        lambda: _slurm(with_slurm),
        lambda: _accounting(with_slurm),
        lambda: _slurm_mpi(cluster),
        _deepspeed,
        _compiler,
        lambda: _gpu(cluster),
        _gl,
        lambda: _disk(runs),
        lambda: _locking(runs, cluster),
        _shared_memory,
    ]
    # Most of the time goes to programs that start: side by side, and printed in order.
    with submission_environment(), ThreadPoolExecutor() as pool:
        outcomes = list(pool.map(lambda check: check(), checks))
    for outcome in outcomes:
        print(f"{outcome.verdict:4}  {outcome.name:14}  {outcome.detail}")
    missing = [outcome.name for outcome in outcomes if outcome.verdict == "miss"]
    print(f"missing: {', '.join(missing)}" if missing else "nothing that is needed is missing")
    return 1 if missing else 0


def _probe(command: list[str]) -> tuple[bool, str]:
    """Whether a command succeeds, and its output or the last line of its error."""
    try:
        result = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=PROBE_SECONDS
        )
    except OSError as error:
        return False, str(error.strerror)
    except subprocess.TimeoutExpired:
        return False, f"no answer in {PROBE_SECONDS} s"
    if result.returncode == 0:
        return True, result.stdout.strip()
    lines = result.stderr.strip().splitlines() or [f"exit code {result.returncode}"]
    return False, lines[-1]


def _probe_python(code: str) -> tuple[bool, str]:
    return _probe([sys.executable, "-P", "-c", code])


def _mpi() -> Check:
    code = (
        "from mpi4py import MPI; world = MPI.COMM_WORLD; name, version = MPI.get_vendor()\n"
        "if world.Get_rank() == 0: print(world.Get_size(), name, *version)"
    )
    try:
        works, text = _probe([find_mpiexec(), "-n", "2", sys.executable, "-P", "-c", code])
    except SadError as error:
        return Check("MPI", "miss", str(error))
    size, _, library = text.partition(" ")
    if works and size == "2":
        return Check("MPI", "ok", f"2 ranks see each other ({library})")
    if works:
        text = (
            "mpiexec -n 2 starts 2 worlds of one rank: mpiexec and mpi4py use different libraries"
        )
    return Check("MPI", "miss", f"{text}; pip install mpich mpi4py, and use its mpiexec")


def _slurm(needed: bool) -> Check:
    absent = [name for name in ("sbatch", "srun", "squeue") if shutil.which(name) is None]
    if absent:
        way_out = 'work on a login node, or try: eval "$(slurm/dev_cluster.sh up)"'
        return Check("Slurm", "miss" if needed else "skip", f"no {', '.join(absent)}; {way_out}")
    works, text = _probe(["sinfo", "--noheader", "--format=%P %D %T"])
    if not works:
        detail = f"sinfo: {text}; is SLURM_CONF set, and slurmctld running?"
        return Check("Slurm", "miss" if needed else "skip", detail)
    return Check("Slurm", "ok", "; ".join(text.splitlines()[:4]))


def _accounting(needed: bool) -> Check:
    if shutil.which("sacct") is None:
        return Check("sacct", "miss" if needed else "skip", "no sacct on the PATH")
    works, text = _probe(["sacct", "--noheader", "--allocations", "--format=JobID"])
    if works:
        return Check("sacct", "ok", "accounting answers")
    # Without it, states come from squeue, markers and heartbeats.
    return Check("sacct", "skip", f"{text}; jobs that ended long ago will show without a reason")


def _slurm_mpi(cluster: ClusterConfig | None) -> Check:
    """Whether srun can start the ranks of collect: with another type each would be alone."""
    name = "Slurm's MPI"
    if cluster is None or cluster.executor != "slurm" or shutil.which("srun") is None:
        return Check(name, "skip", "only asked for --cluster slurm, where srun is")
    works, text = _probe(["srun", "--mpi=list"])
    if not works:
        return Check(name, "miss", f"srun --mpi=list: {text}")
    types = text.replace(":", " ").replace(",", " ").split()
    if cluster.mpi in types:
        return Check(name, "ok", f"srun offers {cluster.mpi}")
    offered = " ".join(text.split())
    return Check(name, "miss", f"srun does not offer cluster.mpi={cluster.mpi} ({offered}); set it")


def _deepspeed() -> Check:
    works, text = _probe_python(
        "import os; os.environ.setdefault('DS_ACCELERATOR', 'cpu')\n"
        "import deepspeed, torch\n"
        "print(f'DeepSpeed {deepspeed.__version__}, torch {torch.__version__}')"
    )
    if works:
        return Check("DeepSpeed", "ok", text.splitlines()[-1])
    return Check("DeepSpeed", "miss", f"{text}; pip install -c constraints.txt torch deepspeed")


def _compiler() -> Check:
    found = shutil.which("g++") or shutil.which("c++")
    if found:
        return Check("C++ compiler", "ok", found)
    return Check(
        "C++ compiler", "skip", "none: DeepSpeed goes without compiled operations; apt install g++"
    )


def _gpu(cluster: ClusterConfig | None) -> Check:
    wanted = cluster is not None and (cluster.pretrain.gpus or cluster.evaluate.gpus)
    works, text = _probe_python(
        "import torch\n"
        "for k in range(torch.cuda.device_count()): print(torch.cuda.get_device_name(k))"
    )
    if works and text:
        return Check("GPU", "ok", ", ".join(text.splitlines()))
    if wanted and cluster is not None and cluster.executor == "local":
        detail = "none visible: set cluster.pretrain.gpus=0, or install the driver and a CUDA torch"
        return Check("GPU", "miss", detail)
    return Check("GPU", "skip", "none on this machine; training runs on CPUs (nodes may have some)")


def _gl() -> Check:
    works, text = _probe_python(
        "from sad_hpc.tasks.miniworld.gl import graphics\n"
        "with graphics(): import pyglet; pyglet.window.Window(visible=False)\n"
        "print(pyglet.gl.gl_info.get_renderer())"
    )
    if works:
        return Check("GL", "ok", text)
    way_out = f"only Miniworld needs it: pip install miniworld; apt install {DEBIAN_PACKAGES}"
    return Check("GL", "skip", f"{text}; {way_out}")


def _existing(folder: Path) -> Path:
    """The folder, or the nearest one above it that exists."""
    folder = folder.absolute()
    return next(path for path in (folder, *folder.parents) if path.is_dir())


def _disk(runs: Path) -> Check:
    folder = _existing(runs)
    free = shutil.disk_usage(folder).free / GIB
    if not os.access(folder, os.W_OK):
        return Check("disk", "miss", f"{folder} cannot be written; choose another --runs folder")
    if free < FREE_DISK_GIB:
        detail = (
            f"{free:.1f} GiB free at {folder}; free {FREE_DISK_GIB} GiB or choose another --runs"
        )
        return Check("disk", "miss", detail)
    return Check("disk", "ok", f"{free:,.0f} GiB free at {folder}")


def _locking(runs: Path, cluster: ClusterConfig | None) -> Check:
    """HDF5 locks the files that it opens; where that cannot be, it has to be told."""
    folder = _existing(runs)
    try:
        works = has_locks(folder)
    except PermissionError:
        return Check("file locking", "skip", f"{folder} cannot be written")
    except OSError as error:
        detail = f"{error.strerror} at {folder}; choose another --runs folder"
        return Check("file locking", "miss", detail)
    if works:
        return Check("file locking", "ok", f"works at {folder}")
    if cluster is not None and cluster.hdf5_file_locking is False:
        detail = f"none at {folder}: switched off for HDF5; jobs mark a folder in use by a file"
        return Check("file locking", "ok", detail)
    way_out = "set cluster.hdf5_file_locking=false or choose another --runs folder"
    return Check("file locking", "miss", f"none at {folder}; {way_out}")


def _shared_memory() -> Check:
    folder = Path("/dev/shm")
    if not folder.is_dir():
        return Check("/dev/shm", "skip", "not there; MPI ranks of one node talk more slowly")
    total = shutil.disk_usage(folder).total / GIB
    if total < SHARED_MEMORY_GIB:
        way_out = "start the container with --shm-size=1g: MPI and NCCL ranks of one node need it"
        return Check("/dev/shm", "miss", f"{total * 1024:.0f} MiB; {way_out}")
    return Check("/dev/shm", "ok", f"{total:.1f} GiB")
