"""Rendering in a separate process.

In one process with MPI, Mesa crashed with a corrupted heap after some thousand tasks, on every
tested network, and never without MPI.  A separate process avoids this.  After a crash of the
renderer or a loss of OpenGL, only the current block is rendered again.
"""

import ctypes
import functools
import multiprocessing
import signal
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool

from sad_hpc.distill.block import Block
from sad_hpc.errors import RenderError, UserError

ATTEMPTS = 3
PARENT_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG


class RenderProcess:
    """A process that adds images to blocks; it starts with the first block."""

    def __init__(self, image_size: int) -> None:
        self._image_size = image_size
        self._pool: ProcessPoolExecutor | None = None

    def add_images(self, block: Block) -> Block:
        """Apply `images.add_images` in the other process.

        Raises:
            UserError: OpenGL is missing, or rendering fails ATTEMPTS times.
        """
        reason = ""
        for _ in range(ATTEMPTS):
            if self._pool is None:
                self._pool = ProcessPoolExecutor(
                    1, multiprocessing.get_context("spawn"), initializer=_obey_the_parent_alone
                )
            try:
                return self._pool.submit(_add_images, block, self._image_size).result()
            except (BrokenProcessPool, RenderError) as error:
                reason = str(error)
                self.close()
        raise UserError(
            f"rendering has failed {ATTEMPTS} times at the same block ({reason}): run `sad-hpc "
            "doctor`, and set LP_NUM_THREADS=1 if it is larger"
        )

    def close(self) -> None:
        """End the process."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
            self._pool = None


@functools.cache
def shared_process(image_size: int) -> RenderProcess:
    """Return this rank's process for images of that size."""
    return RenderProcess(image_size)


def _obey_the_parent_alone() -> None:
    """Ignore the job's signals, which the parent handles, and end with the parent."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR2):
        signal.signal(number, signal.SIG_IGN)
    ctypes.CDLL(None).prctl(PARENT_DEATH_SIGNAL, signal.SIGKILL)


def _add_images(block: Block, image_size: int) -> Block:
    from sad_hpc.collect.images import add_images
    from sad_hpc.tasks.miniworld.renderer import shared_renderer

    return add_images(block, shared_renderer(image_size))
