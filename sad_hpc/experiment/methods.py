"""The methods: the context, query state, action label and weight of their training examples.

| method | context       | query state and action label                          | weight          |
|--------|---------------|-------------------------------------------------------|-----------------|
| AD     | `episodes`    | s_t and a_t; the context is the history before t      | 1               |
| DPT    | `transitions` | uniform state, an action of the behavior policy       | 1               |
| DIT    | `episodes`    | any s_t of the context and a_t                        | lambda x return |
| DPT*   | `transitions` | uniform state, an optimal action (oracle upper bound) | 1               |
| SAD    | `transitions` | Algorithms 2, 3 or 5 by the behavior policy           | 1               |

For bandits the two kinds of context coincide.

Other packages add methods by entry points of the group `sad_hpc.methods`, each a `Method`.
"""

import re
from importlib.metadata import EntryPoint, entry_points

from sad_hpc.errors import ConfigError
from sad_hpc.experiment.method import RANDOM_PLAY, Method
from sad_hpc.user_code import entry_point_object

GROUP = "sad_hpc.methods"
NAMES, SLUGS = r"[A-Za-z][A-Za-z0-9* ]*", r"[a-z][a-z0-9_]*"
CONTEXTS = ("transitions", "episodes")

BUILT_IN: dict[str, Method] = {
    method.name: method
    for method in (
        Method("AD", "ad", "#E69F00", "episodes", None),
        Method("DPT", "dpt", "#D55E00", "transitions", RANDOM_PLAY),
        Method(
            "DIT", "dit", "#009E73", "episodes", None, by_return=True,
            sections=("dit",), loss_scale="dit.weight", revision=2,
        ),
        Method("DPT*", "dpt_star", "#CC79A7", "transitions", "labels/dpt_star"),
        Method("SAD", "sad", "#0072B2", "transitions", "labels/sad", baseline=False),
    )
}  # fmt: skip


def with_installed(known: dict[str, Method], points: list[EntryPoint]) -> dict[str, Method]:
    """Return the known methods and those of entry points, in the order of their names.

    Raises:
        ConfigError: an entry point cannot be imported, is no `Method`, or has a name, slug or
            context that is invalid or taken; the message names the entry point.
    """
    found = dict(known)
    for point in sorted(points, key=lambda each: each.name):
        method = _loaded(point)
        fault = _fault(method, found)
        if fault:
            raise ConfigError(f"method of the entry point {point.name} = {point.value}: {fault}")
        found[method.name] = method
    return found


def _loaded(point: EntryPoint) -> Method:
    text = f"entry point {point.name} of {GROUP}: no `Method` {point.value}"
    try:
        found = entry_point_object(point)
    except ConfigError as error:
        raise ConfigError(f"{text}: {error}") from error
    if not isinstance(found, Method):
        raise ConfigError(f"{text}: it is of type {type(found).__name__}")
    return found


def _fault(method: Method, known: dict[str, Method]) -> str:
    """Return what is wrong with the record of another package; empty if nothing is."""
    if not re.fullmatch(NAMES, method.name):
        return f"name {method.name!r} has other characters than letters, digits, blanks and *"
    if not re.fullmatch(SLUGS, method.slug):
        return f"slug {method.slug!r} has other characters than a-z, 0-9 and _"
    if method.context not in CONTEXTS:
        return f"context {method.context!r} is none of {', '.join(CONTEXTS)}"
    taken = [one for one in known.values() if method.name == one.name or method.slug == one.slug]
    return f"its name or slug is that of {taken[0].name}" if taken else ""


METHODS = with_installed(BUILT_IN, list(entry_points(group=GROUP)))

BASELINES = tuple(method.name for method in METHODS.values() if method.baseline)
"""The methods that SAD is compared with; DPT* is the oracle."""
