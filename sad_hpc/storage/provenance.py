"""Where an output comes from: commit, command, machine and versions."""

import os
import platform
import socket
import subprocess
import sys
import time
from importlib import metadata
from pathlib import Path
from typing import Any

PACKAGE = Path(__file__).resolve().parents[1]

LIBRARIES = (
    "deepspeed", "gymnasium", "h5py", "minigrid", "miniworld", "mpi4py", "mpich", "mujoco", "numba",
    "numpy", "pyglet", "submitit", "torch",
)  # fmt: skip

DECISIVE = ("commit", "dirty", "machine", "gpu", "python", "libraries")
"""What may change the numbers of an output."""


def provenance() -> dict[str, Any]:
    """Git commit, dirty flag, host, processor, GPU, Python and library versions."""
    return {
        "time": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "argv": sys.argv,
        **_git_state(),
        "host": socket.gethostname(),
        "machine": platform.machine(),
        "cpus": os.cpu_count(),
        "gpu": _gpu(),
        "python": platform.python_version(),
        "libraries": {name: version(name) for name in LIBRARIES},
    }


def continued(record: dict[str, Any] | None, now: dict[str, Any]) -> dict[str, Any]:
    """The record of an output that is gone on with now, given that of its beginning.

    `resumed` lists later ones, each of which differs from the one before in `DECISIVE`.
    """
    if record is None:
        return now
    resumed = record.get("resumed") or []
    last = resumed[-1] if resumed else record
    if all(last.get(key) == now[key] for key in DECISIVE):
        return record
    return record | {"resumed": [*resumed, now]}


def _git_state() -> dict[str, Any]:
    def git(*arguments: str) -> str | None:
        command = ["git", "-C", str(PACKAGE), *arguments]
        try:
            return subprocess.run(command, capture_output=True, text=True, check=True).stdout
        except (OSError, subprocess.CalledProcessError):
            return None

    commit = git("rev-parse", "HEAD")
    # Of this package: tables that a run has just rewritten beside it do not count.
    changes = git("status", "--porcelain", "--untracked-files=no", "--", ".")
    dirty = None if changes is None else changes != ""
    return {"commit": commit and commit.strip(), "dirty": dirty}


def _gpu() -> str | None:
    """What this process's torch works on; None: on CPUs, or there is no torch in it."""
    torch = sys.modules.get("torch")
    try:
        return torch.cuda.get_device_name() if torch and torch.cuda.is_available() else None
    except RuntimeError:  # another process has it for itself
        return None


def version(name: str) -> str | None:
    """Of an installed package."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
