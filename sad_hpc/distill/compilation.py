"""How Numba is loaded, and where it keeps compiled kernels: a folder for each of their versions.

Numba looks only at the file of the function itself: after a change in `random.py`, kernels in other
files would go on with the random numbers of the old one.
"""

import hashlib
import os
import sys
import tempfile
from pathlib import Path

from numba import config


def cache_folder() -> Path:
    """Beside the sources, or in the temporary folder where these cannot be written."""
    here = Path(__file__).parent
    sources = hashlib.blake2b(digest_size=8)
    for path in sorted(here.glob("*.py")):
        sources.update(path.read_bytes())
    name = f"kernels-{sources.hexdigest()}"
    if os.access(here, os.W_OK):
        return here / "__pycache__" / name
    return Path(tempfile.gettempdir()) / f"sad_hpc-{os.getuid()}" / name


def load_numba_without_blas() -> None:
    """Saves the 0.13 s that a process takes to load SciPy's linear algebra, which no kernel needs.

    Numba asks for it when it loads its array functions, and is content where it is missing.  What
    multiplies matrices asks again, and finds it.
    """
    blas = "scipy.linalg.cython_blas"
    if blas in sys.modules:
        return
    sys.modules[blas] = None  # type: ignore[assignment]  # Python's way to say that it is missing
    try:
        import numba.np.arraymath  # noqa: F401
    finally:
        del sys.modules[blas]


load_numba_without_blas()
if "NUMBA_CACHE_DIR" not in os.environ:
    config.CACHE_DIR = str(cache_folder())
