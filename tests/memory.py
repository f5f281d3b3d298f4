"""A memory limit for the processes under test, at which the kernel kills the largest one."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.patience import HUNG

MIB = 2**20

TAKE = """
import os, sys
open(sys.argv[1] + "/cgroup.procs", "w").write(str(os.getpid()))
taken = bytearray(int(sys.argv[2]))
taken[::4096] = b"x" * len(taken[::4096])
"""


class MemoryShare:
    """A memory cgroup (version 1) below this process's own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @property
    def inside(self) -> list[str]:
        """Put before a command, has it and its children share this memory."""
        return ["sh", "-c", f'echo $$ > {self._folder}/cgroup.procs && exec "$@"', "sh"]

    @property
    def members(self) -> list[int]:
        """Processes, by id."""
        return [int(pid) for pid in (self._folder / "cgroup.procs").read_text().split()]

    def exhaust(self) -> None:
        """Has somebody else take more memory than there is left."""
        lines = (self._folder / "memory.stat").read_text().splitlines()
        stat = dict(line.split() for line in lines)
        (self._folder / "memory.limit_in_bytes").write_text(str(int(stat["rss"]) + 64 * MIB))
        taken = [sys.executable, "-c", TAKE, str(self._folder), str(128 * MIB)]
        # The kernel kills the largest, and at times the one who asks as well.
        assert subprocess.run(taken, timeout=HUNG).returncode in (0, -signal.SIGKILL)
        (self._folder / "memory.limit_in_bytes").write_text("-1")

    def end(self) -> None:
        """Give the memory back, after the last process inside has ended."""
        self._folder.rmdir()


@contextmanager
def memory_share() -> Iterator[MemoryShare]:
    """One without a limit; skips the test where none can be made."""
    mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    roots = [m[1] for m in mounts if m[2] == "cgroup" and "memory" in m[3].split(",")]
    own = [line.split(":") for line in Path("/proc/self/cgroup").read_text().splitlines()]
    paths = [path for _, controllers, path in own if "memory" in controllers.split(",")]
    if not roots or not paths:
        pytest.skip("a share of the memory needs a memory cgroup of version 1")
    folder = Path(roots[0]) / paths[0].lstrip("/") / f"sad_hpc-test-{os.getpid()}"
    try:
        folder.mkdir()
    except OSError as error:
        pytest.skip(f"no memory cgroup can be made here ({error.strerror})")
    share = MemoryShare(folder)
    try:
        yield share
    finally:
        share.end()
