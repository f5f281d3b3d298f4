"""Provenance of an output: code, command, machine and versions."""

import functools
import hashlib
import os
import platform
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from sad_hpc.storage.json_files import read_json, typed

PACKAGE = Path(__file__).resolve().parents[1]

LIBRARIES = (
    "deepspeed", "gymnasium", "h5py", "minigrid", "miniworld", "mpi4py", "mpich", "mujoco", "numba",
    "numpy", "pyglet", "submitit", "torch",
)  # fmt: skip

OTHER_REPOSITORIES = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY")
"""Variables that redirect git to another repository; git sets them in hooks."""

DECISIVE = ("commit", "dirty", "sources", "machine", "gpu", "python", "libraries")
"""Keys whose values may change the numbers of an output."""


class Maker(BaseModel):
    """The code and machine that made an output or a part of it: the keys that are read back."""

    version: str | None = None
    sources: str | None = None
    commit: str | None = None
    dirty: bool | None = None
    argv: list[str] | None = None
    host: str | None = None
    machine: str | None = None
    cpus: int | None = None
    gpu: str | None = None
    ranks: int | None = None
    precision: str | None = None
    python: str | None = None
    libraries: dict[str, str | None] | None = None


class StageRecord(Maker):
    """A stage's provenance: its first start, and later starts by other versions."""

    command: list[str] | None = None
    resumed: list[Maker] = []


def read_record(path: Path) -> dict[str, Any] | None:
    """Return the content of a `provenance.json`; None if it is missing or not a `StageRecord`."""
    content = read_json(path)
    return None if typed(StageRecord, content) is None else content


def provenance() -> dict[str, Any]:
    """Return package version, digest of its sources, git commit, host, GPU, Python and libraries.

    `commit` and `dirty` are None if no repository tracks the package, or if git refuses one that
    belongs to another user.  `version` and `sources` identify the code in any case.
    """
    return {
        "time": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "argv": sys.argv,
        "version": version("sad_hpc"),
        "sources": source_digest(PACKAGE),
        **_git_state(PACKAGE),
        "host": socket.gethostname(),
        "machine": platform.machine(),
        "cpus": os.cpu_count(),
        "gpu": _gpu(),
        "python": platform.python_version(),
        "libraries": {name: version(name) for name in LIBRARIES},
    }


def continued(record: dict[str, Any] | None, now: dict[str, Any]) -> dict[str, Any]:
    """Return the provenance of an output that this process resumes.

    `resumed` lists the later starts that differ from the one before in a key of `DECISIVE`.

    Args:
        record: the output's provenance so far; None if it is new.
        now: the provenance of this process.
    """
    if record is None:
        return now
    resumed = record.get("resumed") or []
    last = resumed[-1] if resumed else record
    if all(last.get(key) == now[key] for key in DECISIVE):
        return record
    return record | {"resumed": [*resumed, now]}


@functools.cache
def source_digest(package: Path) -> str:
    """Return a BLAKE2b digest, in hex, of the Python files of a package and their names."""
    digest = hashlib.blake2b(digest_size=16)
    for path in sorted(package.rglob("*.py")):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(package).as_posix()} {len(content)}\n".encode() + content)
    return digest.hexdigest()


def _git_state(package: Path) -> dict[str, Any]:
    """Return commit and dirty flag of the repository that tracks the package."""
    environment = {key: os.environ[key] for key in os.environ if key not in OTHER_REPOSITORIES}

    def git(*arguments: str) -> str | None:
        command = ["git", "-C", str(package), *arguments]
        try:
            return subprocess.run(
                command, capture_output=True, text=True, check=True, env=environment
            ).stdout
        except (OSError, subprocess.CalledProcessError):
            return None

    if git("ls-files", "--error-unmatch", "--", "__init__.py") is None:
        return {"commit": None, "dirty": None}
    commit = git("rev-parse", "HEAD")
    # Only changes in this package count, not tables that a run has just rewritten.
    changes = git("status", "--porcelain", "--untracked-files=no", "--", ".")
    dirty = None if changes is None else changes != ""
    return {"commit": commit and commit.strip(), "dirty": dirty}


def _gpu() -> str | None:
    """Return the name of the GPU that this process's torch uses; None without torch or a GPU."""
    torch = sys.modules.get("torch")
    try:
        return torch.cuda.get_device_name() if torch and torch.cuda.is_available() else None
    except RuntimeError:  # another process uses it exclusively
        return None


def version(name: str) -> str | None:
    """Return the version of an installed package; None if it is not installed."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def portable(record: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return a stage's provenance without the folders of the machine that it ran on."""
    if record is None:
        return None
    portables: dict[str, Any] = {}
    if "argv" in record:
        portables["argv"] = without_folders(record["argv"])
    if record.get("resumed"):
        portables["resumed"] = [portable(maker) for maker in record["resumed"]]
    return record | portables


def without_folders(arguments: Sequence[str]) -> list[str]:
    """Return command-line words with absolute paths reduced to their file names."""
    return [Path(word).name if Path(word).is_absolute() else word for word in arguments]
