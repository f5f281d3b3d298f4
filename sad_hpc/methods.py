"""The methods: which context, query state, action label and weight a training example has.

| method | context       | query state and action label                          | weight |
|--------|---------------|-------------------------------------------------------|--------|
| SAD    | `transitions` | Algorithms 2, 3 or 5 by the behavior policy           | 1      |
| DPT    | `transitions` | uniform state, an action of the behavior policy       | 1      |
| DPT*   | `transitions` | uniform state, an optimal action (oracle upper bound) | 1      |
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Method:
    """Where in a dataset file a method finds its training examples."""

    name: str
    """As in the paper and in configs."""
    slug: str
    """For file names."""
    context: str
    """HDF5 group of the contexts: `context` (Algorithm 1) or `episodes` (roll-outs)."""
    labels: str
    """HDF5 group of query states and action labels."""


METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        Method("SAD", "sad", "context", "labels/sad"),
        Method("DPT", "dpt", "context", "labels/dpt"),
        Method("DPT*", "dpt_star", "context", "labels/dpt_star"),
    )
}
