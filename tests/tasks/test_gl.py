"""Errors if OpenGL or the package is missing: one line with the fix."""

import os
import subprocess
import sys

import pytest

from sad_hpc.tasks.miniworld.gl import DEBIAN_PACKAGES
from tests.gl import require_gl
from tests.patience import HUNG

NO_PACKAGE = "import sys; sys.modules['miniworld'] = None"
NO_LIBRARY = """
import pyglet.lib
def missing(*names, **options): raise ImportError(f'Library "{names[0]}" not found.')
pyglet.lib.load_library = missing
"""


def open_room(
    before: str = "", after: str = "", **environment: str
) -> subprocess.CompletedProcess[str]:
    code = f"""
{before}
import gymnasium, sad_hpc.tasks.miniworld.family
from sad_hpc.errors import UserError
for _ in range(2):
    try:
        gymnasium.make('sad_hpc/Miniworld-v0')
    except UserError as error:
        print(error)
{after}
"""
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=HUNG,
    )


@pytest.mark.parametrize("before", [NO_PACKAGE, NO_LIBRARY], ids=["package", "library"])
def test_a_missing_package_or_library_is_one_line_that_says_what_to_install(before):
    done = open_room(before)
    first, second = done.stdout.splitlines()
    assert first == second
    assert f"apt-get install {DEBIAN_PACKAGES}" in first and "pip install miniworld" in first


def test_missing_drivers_are_the_same_error():
    require_gl()
    done = open_room(__EGL_VENDOR_LIBRARY_FILENAMES="/nonexistent")
    assert done.returncode == 0, done.stderr
    assert all(DEBIAN_PACKAGES in line for line in done.stdout.splitlines())
    assert len(done.stdout.splitlines()) == 2


def test_nothing_is_printed_where_all_is_there():
    require_gl()
    done = open_room()
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize("given, used", [({}, "1"), ({"LP_NUM_THREADS": "2"}, "2")])
def test_rendering_uses_one_thread_unless_told_otherwise(given, used):
    require_gl()
    environment = {k: v for k, v in os.environ.items() if k != "LP_NUM_THREADS"} | given
    code = """
import os
from sad_hpc.tasks.miniworld.renderer import shared_renderer
shared_renderer()
names = [open(f'/proc/self/task/{t}/comm').read() for t in os.listdir('/proc/self/task')]
print(sum('llvmpipe' in name for name in names))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    if done.stdout.strip() == "0":
        pytest.skip("OpenGL is not Mesa's llvmpipe here")
    assert done.stdout.strip() == used


@pytest.mark.slow
def test_mesa_draws_in_software_wherever_it_runs():
    require_gl()
    done = open_room(after="from pyglet.gl import gl_info; print(gl_info.get_renderer())")
    assert "llvmpipe" in done.stdout or "softpipe" in done.stdout
    chosen = "import os; print(os.environ['LIBGL_ALWAYS_SOFTWARE'])"
    assert open_room(after=chosen, LIBGL_ALWAYS_SOFTWARE="0").stdout == "0\n"
