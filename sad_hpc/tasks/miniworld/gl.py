"""OpenGL without a screen, and one error where there is none."""

import contextlib
import io
import os
from collections.abc import Iterator
from pathlib import Path

from sad_hpc.errors import UserError

DEBIAN_PACKAGES = "libegl1 libgl1 libglu1-mesa libgl1-mesa-dri"

MESA = Path("/usr/share/glvnd/egl_vendor.d/50_mesa.json")
"""Where EGL's dispatcher, if there is one, learns of Mesa."""


@contextlib.contextmanager
def graphics() -> Iterator[None]:
    """Whatever imports `miniworld` or opens a room of it does so inside of this.

    Rendering goes through EGL, to no screen, by one thread (LP_NUM_THREADS of Mesa) unless the
    environment asks for more: ranks must not fight for cores.  Mesa draws in software also where
    there is a GPU: drivers differ in rounding, and images must not depend on the node.

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
        # Asks for errors after every single GL call, at a quarter of the time of `miniworld`; the
        # renderer asks once a batch instead.
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
