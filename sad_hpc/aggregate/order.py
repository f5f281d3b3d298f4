"""The order of policies in tables and figures."""

from collections.abc import Iterable

from sad_hpc.aggregate.series import is_ideal
from sad_hpc.experiment.methods import METHODS
from sad_hpc.experiment.rows import is_recipe, method_of

LIMITS = ("optimal", "random")


def row_order(names: Iterable[str]) -> list[str]:
    """Rows with the methods first, then recipes such as `SAD+`, then others, as they come."""
    methods = list(METHODS)

    def place(name: str) -> int:
        return methods.index(name) if name in METHODS else len(methods) + (not is_recipe(name))

    return sorted(dict.fromkeys(name for name in names if method_of(name)), key=place)


def reference_order(names: Iterable[str]) -> list[str]:
    """The references that tables show: ideal learners, optimal and random play."""
    shown = dict.fromkeys(names)
    return [*filter(is_ideal, shown), *(name for name in LIMITS if name in shown)]
