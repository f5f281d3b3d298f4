"""Task families; importing this package registers every module in it."""

import importlib
import pkgutil

from sad_hpc.tasks.base import FAMILIES, TabularFamily, TabularMDPs, TaskConfig, make_family

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")

__all__ = ["FAMILIES", "TabularFamily", "TabularMDPs", "TaskConfig", "make_family"]
