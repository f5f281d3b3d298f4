"""Where an output comes from: code, command, machine and versions."""

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

from sad_hpc.storage.files import read_json, typed

PACKAGE = Path(__file__).resolve().parents[1]

LIBRARIES = (
    "deepspeed", "gymnasium", "h5py", "minigrid", "miniworld", "mpi4py", "mpich", "mujoco", "numba",
    "numpy", "pyglet", "submitit", "torch",
)  # fmt: skip

OTHER_REPOSITORIES = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY")
"""Variables that send git elsewhere; its own hooks set them."""

DECISIVE = ("commit", "dirty", "sources", "machine", "gpu", "python", "libraries")
"""What may change the numbers of an output."""


class Maker(BaseModel):
    """What made an output, or a part of it, as far as it is read back."""

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
    """A stage's provenance: what began it, and what continued it by other versions."""

    command: list[str] | None = None
    resumed: list[Maker] = []


def read_record(path: Path) -> dict[str, Any] | None:
    """Return the content of a `provenance.json`; None if it is missing or no `StageRecord`."""
    content = read_json(path)
    return None if typed(StageRecord, content) is None else content


def provenance() -> dict[str, Any]:
    """Package version, digest of its sources, git commit, host, GPU, Python and libraries.

    `commit` and `dirty` are None where no repository tracks the package, or where git refuses one
    that belongs to another user; `version` and `sources` name the code there, too.
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


@functools.cache
def source_digest(package: Path) -> str:
    """Return a BLAKE2b digest, in hex, of the Python files of a package and their names."""
    digest = hashlib.blake2b(digest_size=16)
    for path in sorted(package.rglob("*.py")):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(package).as_posix()} {len(content)}\n".encode() + content)
    return digest.hexdigest()


def _git_state(package: Path) -> dict[str, Any]:
    """Commit and dirty flag of the repository that tracks the package."""
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


def portable(record: dict[str, Any] | None) -> dict[str, Any] | None:
    """A stage's provenance without the folders of the machine that it ran on."""
    if record is None:
        return None
    portables: dict[str, Any] = {}
    if "argv" in record:
        portables["argv"] = without_folders(record["argv"])
    if record.get("resumed"):
        portables["resumed"] = [portable(maker) for maker in record["resumed"]]
    return record | portables


def without_folders(arguments: Sequence[str]) -> list[str]:
    """Command-line words in which absolute paths have lost their folders."""
    return [Path(word).name if Path(word).is_absolute() else word for word in arguments]
