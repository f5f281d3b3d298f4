"""Where Numba keeps the compiled kernels: a folder for each version of their sources.

Numba looks only at the file of the function itself: after a change in `random.py`, kernels in other
files would go on with the random numbers of the old one.
"""

import hashlib
import os
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


if "NUMBA_CACHE_DIR" not in os.environ:
    config.CACHE_DIR = str(cache_folder())
