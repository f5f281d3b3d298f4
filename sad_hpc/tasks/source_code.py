"""The code of a user's own environment or family, as far as it decides what data are made.

Its digest is part of a dataset's signature, so that data of an earlier version are not taken for
those of an edited one.
"""

import hashlib
import inspect
import sys
from collections.abc import Iterable

KNOWN = {"sad_hpc", "gymnasium", "numpy", *sys.stdlib_module_names}
"""Their changes are counted elsewhere: by revisions here, by versions of ids in Gymnasium."""


def code_digests(classes: Iterable[type]) -> tuple[str, ...]:
    """A digest for each module that defines one of these classes or of their bases, sorted.

    Modules of KNOWN and those without source files are left out.  What a module imports is not
    looked at.
    """
    modules = {base.__module__ for each in classes for base in each.__mro__}
    own = {name for name in modules if name.partition(".")[0] not in KNOWN}
    return tuple(digest for name in sorted(own) if (digest := _digest(name)) is not None)


def _digest(module: str) -> str | None:
    """BLAKE2b of a module's source text, in hex; its line ends do not count."""
    try:
        text = inspect.getsource(sys.modules[module])
    except (KeyError, OSError, TypeError):
        return None
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
