"""The methods: which context, query state, action label and weight a training example has.

| method | context       | query state and action label                          | weight          |
|--------|---------------|-------------------------------------------------------|-----------------|
| AD     | `episodes`    | s_t and a_t; the context is the history before t      | 1               |
| DPT    | `transitions` | uniform state, an action of the behavior policy       | 1               |
| DIT    | `episodes`    | any s_t of the context, and a_t                       | lambda x return |
| DPT*   | `transitions` | uniform state, an optimal action (oracle upper bound) | 1               |
| SAD    | `transitions` | Algorithms 2, 3 or 5 by the behavior policy           | 1               |

For bandits the two kinds of context coincide.
"""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Method:
    """Where in a dataset file a method finds its training examples."""

    name: str
    """As in the paper and in configs."""
    slug: str
    """For file names."""
    context: str
    """HDF5 group of the contexts: `context` (Algorithm 1) or `episodes` (roll-outs)."""
    labels: str | None
    """HDF5 group of query states and action labels; None: a transition of the context itself."""
    weight: Literal["all", "history", "return"] = "all"
    """all: the answer counts after every prefix of the context.
    history: only after the transitions before the query (AD).
    return: as `all`, times lambda x the query's discounted return-to-go (DIT)."""


METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        Method("AD", "ad", "episodes", None, "history"),
        Method("DPT", "dpt", "context", "labels/dpt"),
        Method("DIT", "dit", "episodes", None, "return"),
        Method("DPT*", "dpt_star", "context", "labels/dpt_star"),
        Method("SAD", "sad", "context", "labels/sad"),
    )
}
