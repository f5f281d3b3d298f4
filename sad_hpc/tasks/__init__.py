"""Task families; importing this package registers every module in it."""

import importlib
import pkgutil

from sad_hpc.tasks.bandit import BanditFamily
from sad_hpc.tasks.base import (
    FAMILIES,
    TabularFamily,
    TabularMDPs,
    TaskConfig,
    TaskFamily,
    make_family,
)
from sad_hpc.tasks.miniworld.family import Miniworld

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")

__all__ = [
    "FAMILIES",
    "BanditFamily",
    "Miniworld",
    "TabularFamily",
    "TabularMDPs",
    "TaskConfig",
    "TaskFamily",
    "make_family",
]
