"""Rendering in a separate process.

Mesa sometimes crashes with a corrupted heap: in one process with MPI after some thousand tasks, on
every tested network, and without MPI on a busy machine.  A crash of the renderer or a loss of
OpenGL then costs the current images, which are rendered again.
"""

import ctypes
import functools
import multiprocessing
import signal
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool

import numpy as np
from numpy.typing import NDArray

from sad_hpc.errors import RenderError, UserError

ATTEMPTS = 3
PARENT_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG


class RenderProcess:
    """A process with a `Renderer`; it starts with the first images."""

    def __init__(self, image_size: int) -> None:
        self._image_size = image_size
        self._pool: ProcessPoolExecutor | None = None

    def render(self, poses: NDArray[np.float64]) -> NDArray[np.uint8]:
        """Render images (n, s, s, 3) at poses (n, 3); see `Renderer.render`.

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
                return self._pool.submit(_render, poses, self._image_size).result()
            except (BrokenProcessPool, RenderError) as error:
                reason = str(error).rstrip(".")
                print(f"rendering again in a new process: {reason}", flush=True)
                self.close()
        raise UserError(
            f"rendering has failed {ATTEMPTS} times at the same images ({reason}): run `sad-hpc "
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


def _render(poses: NDArray[np.float64], image_size: int) -> NDArray[np.uint8]:
    from sad_hpc.tasks.miniworld.renderer import shared_renderer  # opens OpenGL

    return shared_renderer(image_size).render(poses)
