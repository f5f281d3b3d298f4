"""Headless OpenGL."""

import contextlib
import io
import os
from collections.abc import Iterator
from pathlib import Path

from sad_hpc.errors import UserError

DEBIAN_PACKAGES = "libegl1 libgl1 libglu1-mesa libgl1-mesa-dri"

MESA = Path("/usr/share/glvnd/egl_vendor.d/50_mesa.json")
"""File by which EGL's dispatcher finds Mesa."""


@contextlib.contextmanager
def graphics() -> Iterator[None]:
    """Set up headless rendering; imports of `miniworld` and openings of rooms need this context.

    Rendering uses EGL without a screen, and one thread unless LP_NUM_THREADS is set, so that ranks
    do not compete for cores.  Mesa draws in software even on a node with a GPU, because images must
    not depend on the rounding of a driver.

    Raises:
        UserError: `miniworld`, or a graphics library that it needs, is missing.
    """
    os.environ.setdefault("LP_NUM_THREADS", "1")
    os.environ.setdefault("LIBGL_ALWAYS_SOFTWARE", "1")
    if MESA.exists():
        os.environ.setdefault("__EGL_VENDOR_LIBRARY_FILENAMES", str(MESA))
    try:
        import pyglet

        # pyglet reads both when its first window or GL function is imported.
        pyglet.options["headless"] = True
        # An error check after every GL call takes a quarter of the time; the renderer checks once
        # a batch instead.
        pyglet.options["debug_gl"] = False
        # miniworld prints a line about multisampling for every frame buffer.
        with contextlib.redirect_stdout(io.StringIO()):
            yield
    except UserError:
        raise
    except Exception as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split()).rstrip(": ")
        raise UserError(
            f"Miniworld cannot be rendered here ({reason}): install OpenGL, on Debian or Ubuntu by "
            f"`apt-get install {DEBIAN_PACKAGES}`, and the package by `pip install miniworld`"
        ) from error
