"""`sad-hpc doctor`: check what this machine has and lacks, and print a fix for each miss."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Literal

from sad_hpc.errors import UserError
from sad_hpc.launch.cluster import ClusterConfig
from sad_hpc.launch.environment import submission_environment
from sad_hpc.launch.executor import find_mpiexec
from sad_hpc.launch.slurm import on
from sad_hpc.storage.files import has_locks
from sad_hpc.tasks.miniworld.gl import DEBIAN_PACKAGES

GIB = 2**30
FREE_DISK_GIB = 5
"""Enough for the paper's largest dataset, its checkpoints and evaluations."""
SHARED_MEMORY_GIB = 0.25
PROBE_SECONDS = 180
TRIAL_SECONDS = 180
"""Time limit for the check of a config, including the compilation of kernels."""


Outcome = tuple[Literal["ok", "miss", "skip"], str]
"""Verdict and details.  miss: needed but absent; skip: absent but not needed."""


def check_machine(
    cluster: ClusterConfig, runs: Path = Path("runs"), config: Path | None = None
) -> int:
    """Check this machine, and print a line for each check; return 1 if a requirement is missing.

    Args:
        cluster: the settings to check for; Slurm is required only if they use it.
        runs: the folder of runs.
        config: an experiment's config file, whose tasks are tried; None to try none.
    """
    checks: dict[str, Callable[[], Outcome]] = {
        "MPI": _mpi,
        "Slurm": lambda: _slurm(cluster),
        "sacct": lambda: _accounting(cluster),
        "Slurm's MPI": lambda: _slurm_mpi(cluster),
        "DeepSpeed": _deepspeed,
        "CPU kernel": _kernel,
        "C++ compiler": _compiler,
        "GPU": lambda: _gpu(cluster),
        "GL": _gl,
        "disk": lambda: _disk(runs),
        "file locking": lambda: _locking(runs, cluster),
        "/dev/shm": _shared_memory,
    }
    if config is not None:
        checks["config"] = lambda: _config(config)
    # Starting programs takes most of the time, so the checks run in parallel.
    with submission_environment(), ThreadPoolExecutor() as pool:
        outcomes = dict(zip(checks, pool.map(lambda check: check(), checks.values()), strict=True))
    for name, outcome in outcomes.items():
        print_outcome(name, outcome)
    missing = [name for name, (verdict, _) in outcomes.items() if verdict == "miss"]
    print(f"missing: {', '.join(missing)}" if missing else "all requirements are met")
    return 1 if missing else 0


def print_outcome(name: str, outcome: Outcome) -> None:
    """Print one line about a check."""
    verdict, detail = outcome
    print(f"{verdict:4}  {name:14}  {detail}", flush=True)


def _probe(command: list[str], both: bool = False) -> tuple[bool, str]:
    """Return whether a command succeeds, and its output or the last line of its error.

    Args:
        command: the command.
        both: whether what it prints to standard error belongs to its output.
    """
    try:
        result = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=PROBE_SECONDS
        )
    except OSError as error:
        return False, str(error.strerror)
    except subprocess.TimeoutExpired:
        return False, f"no answer in {PROBE_SECONDS} s (on a busy machine, try again)"
    if result.returncode == 0:
        return True, (result.stdout + result.stderr * both).strip()
    return False, _error_lines(result)[-1]


def _error_lines(ended: "subprocess.CompletedProcess[str]") -> list[str]:
    return ended.stderr.strip().splitlines() or [f"exit code {ended.returncode}"]


def _probe_python(code: str) -> tuple[bool, str]:
    return _probe([sys.executable, "-P", "-c", code])


def _config(config: Path) -> Outcome:
    """Check the config in a separate process, which ends itself if the environment hangs."""
    command = [sys.executable, "-P", "-m", "sad_hpc.launch.check_config", str(config)]
    command.append(str(TRIAL_SECONDS))
    ended = subprocess.run(command, capture_output=True, text=True, errors="replace")
    lines = _error_lines(ended)
    if ended.returncode == 0:
        if outcome := ended.stdout.strip():
            return "ok", outcome
        return "miss", f"{config}: the environment ended its process: {lines[-1]}"
    if any(line.startswith("Timeout (") for line in lines):
        # The main thread's stack comes last.
        last = max(n for n, line in enumerate(lines) if line.startswith(("Timeout (", "Thread ")))
        place = next((line for line in lines[last:] if line.startswith("  File ")), "")
        return "miss", (
            f"{config}: the check did not end in {TRIAL_SECONDS} s; it was in{place[6:]}. Make "
            "sure that each step of the environment ends"
        )
    return "miss", lines[-1]


def _mpi() -> Outcome:
    code = (
        "from mpi4py import MPI; world = MPI.COMM_WORLD; name, version = MPI.get_vendor()\n"
        "if world.Get_rank() == 0: print(world.Get_size(), name, *version)"
    )
    try:
        works, text = _probe([find_mpiexec(), "-n", "2", sys.executable, "-P", "-c", code])
    except UserError as error:
        return "miss", str(error)
    size, _, library = text.partition(" ")
    if works and size == "2":
        return "ok", f"2 ranks see each other ({library})"
    if works:
        text = (
            "mpiexec -n 2 starts 2 worlds of one rank: mpiexec and mpi4py use different libraries"
        )
    return "miss", f"{text}; pip install mpich mpi4py, and use its mpiexec"


def _slurm(cluster: ClusterConfig) -> Outcome:
    absent = [name for name in ("sbatch", "srun", "squeue") if shutil.which(name) is None]
    if absent:
        remedy = 'use a login node, or start a local Slurm: eval "$(slurm/dev_cluster.sh up)"'
        return _miss_with_slurm(cluster), f"no {', '.join(absent)}; {remedy}"
    works, text = _probe(on(cluster.clusters, ["sinfo", "--noheader", "--format=%P %D %T"]))
    if works:
        return "ok", "; ".join(text.splitlines()[:4])
    reason = text.removeprefix("sinfo: ")
    remedy = "check that SLURM_CONF is set and slurmctld runs"
    return _miss_with_slurm(cluster), f"sinfo: {reason}; {remedy}"


def _accounting(cluster: ClusterConfig) -> Outcome:
    if shutil.which("sacct") is None:
        return _miss_with_slurm(cluster), "no sacct on the PATH"
    command = ["sacct", "--noheader", "--allocations", "--format=JobID"]
    works, text = _probe(on(cluster.clusters, command))
    if works:
        return "ok", "accounting answers"
    # Without accounting, states come from squeue, markers and heartbeats.
    return "skip", f"{text}; status shows no reason for old jobs"


def _miss_with_slurm(cluster: ClusterConfig) -> Literal["miss", "skip"]:
    return "miss" if cluster.executor == "slurm" else "skip"


def _slurm_mpi(cluster: ClusterConfig) -> Outcome:
    """Check that srun supports `cluster.mpi`; with another type each rank would be alone."""
    if cluster.executor != "slurm" or shutil.which("srun") is None:
        return "skip", "checked only with --cluster slurm and srun on the PATH"
    works, text = _probe(["srun", "--mpi=list"], both=True)  # an error stream until Slurm 21.08
    if not works:
        return "miss", f"srun --mpi=list: {text}"
    if cluster.mpi in text.replace(":", " ").replace(",", " ").split():
        return "ok", f"srun offers {cluster.mpi}"
    offered = " ".join(text.split())
    return "miss", f"srun does not offer cluster.mpi={cluster.mpi} ({offered}); set another one"


def _deepspeed() -> Outcome:
    works, text = _probe_python(
        "import os; os.environ.setdefault('DS_ACCELERATOR', 'cpu')\n"
        "import deepspeed, torch\n"
        "print(f'DeepSpeed {deepspeed.__version__}, torch {torch.__version__}')"
    )
    if works:
        return "ok", text.splitlines()[-1]
    return "miss", f"{text}; pip install -c constraints.txt torch deepspeed"


def _kernel() -> Outcome:
    works, text = _probe_python(
        "from sad_hpc.model.fused.kernel import is_compiled\n"
        "from sad_hpc.model.fused.products import WIDE\n"
        "print('AVX-512' if WIDE else 'no AVX-512: slower', end=', ')\n"
        "print('compiled' if is_compiled() else 'the first training compiles it in a minute')"
    )
    if works:
        return "ok", text
    return "skip", f"{text}; torch trains instead, at a quarter of the speed"


def _compiler() -> Outcome:
    if found := shutil.which("g++") or shutil.which("c++"):
        return "ok", found
    return "skip", "none: DeepSpeed runs without compiled operations; apt install g++"


def _gpu(cluster: ClusterConfig) -> Outcome:
    works, text = _probe_python(
        "import torch\n"
        "for k in range(torch.cuda.device_count()): print(torch.cuda.get_device_name(k))"
    )
    if works and text:
        return "ok", ", ".join(text.splitlines())
    if cluster.executor == "local" and (cluster.pretrain.gpus or cluster.evaluate.gpus):
        remedy = "set cluster.pretrain.gpus=0, or install the driver and a CUDA torch"
        return "miss", f"none visible: {remedy}"
    return "skip", "none on this machine; training runs on CPUs (nodes may have GPUs)"


def _gl() -> Outcome:
    works, text = _probe_python(
        "from sad_hpc.tasks.miniworld.gl import graphics\n"
        "with graphics(): import pyglet; pyglet.window.Window(visible=False)\n"
        "print(pyglet.gl.gl_info.get_renderer())"
    )
    if works:
        return "ok", text
    remedy = f"only Miniworld needs it: pip install miniworld; apt install {DEBIAN_PACKAGES}"
    return "skip", f"{text}; {remedy}"


def _existing(folder: Path) -> Path:
    """Return the folder, or the nearest existing one above it."""
    folder = folder.absolute()
    return next(path for path in (folder, *folder.parents) if path.is_dir())


def _disk(runs: Path) -> Outcome:
    folder = _existing(runs)
    free = shutil.disk_usage(folder).free / GIB
    if not os.access(folder, os.W_OK):
        return "miss", f"{folder} cannot be written; choose another --runs folder"
    if free < FREE_DISK_GIB:
        remedy = f"free {FREE_DISK_GIB} GiB or choose another --runs"
        return "miss", f"{free:.1f} GiB free at {folder}; {remedy}"
    return "ok", f"{free:,.0f} GiB free at {folder}"


def _locking(runs: Path, cluster: ClusterConfig) -> Outcome:
    """Check file locks, which HDF5 uses unless `cluster.hdf5_file_locking` is false."""
    folder = _existing(runs)
    try:
        works = has_locks(folder)
    except PermissionError:
        return "skip", f"{folder} cannot be written"
    except OSError as error:
        return "miss", f"{error.strerror} at {folder}; choose another --runs folder"
    if works:
        return "ok", f"works at {folder}"
    if cluster.hdf5_file_locking is False:
        return "ok", f"none at {folder}; HDF5 locking is off, and jobs use lock files"
    remedy = "set cluster.hdf5_file_locking=false or choose another --runs folder"
    return "miss", f"none at {folder}; {remedy}"


def _shared_memory() -> Outcome:
    folder = Path("/dev/shm")
    if not folder.is_dir():
        return "skip", "missing; MPI ranks of one node communicate more slowly"
    total = shutil.disk_usage(folder).total / GIB
    if total < SHARED_MEMORY_GIB:
        remedy = "start the container with --shm-size=1g: MPI and NCCL ranks of one node need it"
        return "miss", f"{total * 1024:.0f} MiB; {remedy}"
    return "ok", f"{total:.1f} GiB"
