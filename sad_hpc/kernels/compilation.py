"""The cache folder of compiled kernels, one for each version of their sources.

Numba's cache checks only the file of a function itself: after a change in `random.py`, kernels in
other files would use its old random numbers.  Numba unpickles cache files, so other users must not
have write access.
"""

import atexit
import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from numba import config
from numba.core.event import Event, Listener, install_listener

from sad_hpc.errors import UserError
from sad_hpc.storage.ownership import check_ownership, is_private

COMPILING = "compiling, once a machine"

COMPILED = ("kernels", "distill", "tasks/miniworld", "model/fused")
"""Folders with compiled code; their functions call each other."""


def cache_folder() -> Path:
    """Return the cache folder: beside the sources, in the user's cache folder, or a temporary one.

    A folder is skipped if it is not writable or if other users can write to it.
    """
    here = Path(__file__).parent
    sources = hashlib.blake2b(digest_size=8)
    for room in COMPILED:
        for path in sorted((here.parent / room).glob("*.py")):
            sources.update(path.read_bytes())
    name = f"kernels-{sources.hexdigest()}"
    beside = here / "__pycache__" / name
    with suppress(UserError):
        if os.access(here, os.W_OK):
            check_ownership(beside)
            return beside
    try:
        return _private_folder() / name
    except (UserError, OSError, RuntimeError):  # RuntimeError: this user has no home
        temporary = tempfile.mkdtemp(prefix="sad_hpc-")
        atexit.register(shutil.rmtree, temporary, ignore_errors=True)
        return Path(temporary)


def _private_folder() -> Path:
    """Return this package's folder in the user's cache, which other users cannot write.

    Raises:
        UserError, OSError, RuntimeError: such a folder cannot be made.
    """
    caches = os.environ.get("XDG_CACHE_HOME", "")
    folder = (Path(caches) if caches.startswith("/") else Path.home() / ".cache") / "sad_hpc"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    check_ownership(folder)
    if not (is_private(folder) and os.access(folder, os.W_OK)):
        raise UserError(f"{folder} is writable by other users")
    return folder


class _Announcer(Listener):
    """A listener that calls `say` when the first kernel starts to compile."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say, self._said = say, False

    def on_start(self, event: Event) -> None:
        """Announce the first compilation."""
        if not self._said:
            self._said = True
            self._say(COMPILING)

    def on_end(self, event: Event) -> None:
        """Ignore the end of a compilation."""


@contextmanager
def compilation_announced(say: Callable[[str], None]) -> Iterator[None]:
    """Call `say` with COMPILING when Numba first compiles a kernel in this context.

    A compilation can take minutes.  A kernel that is loaded from the cache is not announced.
    """
    with install_listener("numba:compile", _Announcer(say)):
        yield


if config.DISABLE_JIT:
    raise UserError("NUMBA_DISABLE_JIT is set, but kernels must be compiled: unset it")
if "NUMBA_CACHE_DIR" not in os.environ:
    config.CACHE_DIR = str(cache_folder())
