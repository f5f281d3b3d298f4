"""A disk that fails on demand, visible only to the processes under test."""

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

LIFETIME = "1200"
"""Seconds after which a mount that was not ended is ended by its holder."""


class Disk:
    """An ext4 in a file, mounted at `folder` in a mount namespace of its own."""

    def __init__(self, image: Path, folder: Path) -> None:
        self._image, self.folder = image, folder
        here = Path("/proc/self/ns/mnt").readlink()
        self._holder = subprocess.Popen(["unshare", "--mount", "sleep", LIFETIME])
        while self._holder.poll() is None and self._namespace.readlink() == here:
            time.sleep(0.01)

    @property
    def _namespace(self) -> Path:
        return Path(f"/proc/{self._holder.pid}/ns/mnt")

    @property
    def inside(self) -> list[str]:
        """Put before a command, has it see the disk."""
        return ["nsenter", f"--mount={self._namespace}"]

    @property
    def seen_from_outside(self) -> Path:
        """The disk's folder, as a path for processes outside of its mount namespace."""
        return Path(f"/proc/{self._holder.pid}/root") / self.folder.relative_to("/")

    def mount(self) -> None:
        """Makes the disk writable."""
        self.run("mount", "-o", "loop,errors=remount-ro", str(self._image), str(self.folder))

    def fail(self) -> None:
        """Has the kernel find an error: as after a disk's, nothing can be written any more."""
        device = self.run("findmnt", "--noheadings", "--output=SOURCE", str(self.folder))
        Path(f"/sys/fs/ext4/{Path(device.strip()).name}/trigger_fs_error").write_text("1")

    def repair(self) -> None:
        """Unmount the disk, correct its errors and mount it again."""
        self.run("umount", str(self.folder))
        # 1: errors are corrected.
        done = subprocess.run(["e2fsck", "-fy", self._image], capture_output=True, text=True)
        assert done.returncode <= 1, done.stdout
        self.mount()

    def run(self, *command: str) -> str:
        """Run a command inside of the disk's mount namespace, and return its output."""
        command = (*self.inside, *command)
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    def end(self) -> None:
        """The mount is gone when the last process that sees it is."""
        self._holder.kill()
        self._holder.wait()


@contextmanager
def ext4(folder: Path) -> Iterator[Disk]:
    """A disk of 256 MB; skips the test where none can be mounted."""
    needed = ("unshare", "nsenter", "mkfs.ext4", "e2fsck", "findmnt")
    missing = [name for name in needed if shutil.which(name) is None]
    if missing or os.geteuid() != 0:
        pytest.skip(f"a disk of one's own needs {', '.join(missing) or 'root'}")
    image, mounted = folder / "disk.img", folder / "disk"
    mounted.mkdir()
    with image.open("wb") as file:
        file.truncate(2**28)
    subprocess.run(["mkfs.ext4", "-q", image], check=True)
    disk = Disk(image, mounted)
    try:
        try:
            disk.mount()
        except subprocess.CalledProcessError as error:
            pytest.skip(f"this kernel mounts no file as a disk ({error.stderr.strip()})")
        yield disk
    finally:
        disk.end()
