"""Digests of the source code of a user's environment or task family.

A digest is part of the dataset's signature.  An edited environment therefore gets new data.
"""

import hashlib
import inspect
import sys
from collections.abc import Iterable

KNOWN = {"sad_hpc", "gymnasium", "numpy", *sys.stdlib_module_names}
"""Packages without digests: revisions of this package and versioned Gymnasium ids cover them."""


def code_digests(classes: Iterable[type]) -> tuple[str, ...]:
    """Return the digests of the modules that define these classes and their bases, sorted.

    Modules of KNOWN and modules without a source file are left out.  Imports of a module are not
    followed.
    """
    modules = {base.__module__ for each in classes for base in each.__mro__}
    own = {name for name in modules if name.partition(".")[0] not in KNOWN}
    return tuple(digest for name in sorted(own) if (digest := _digest(name)) is not None)


def _digest(module: str) -> str | None:
    """Return the BLAKE2b digest of a module's source text, in hex, with normalized line ends."""
    try:
        text = inspect.getsource(sys.modules[module])
    except (KeyError, OSError, TypeError):
        return None
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
