"""The methods: which context, query state, action label and weight a training example has.

| method | context       | query state and action label                          | weight          |
|--------|---------------|-------------------------------------------------------|-----------------|
| AD     | `episodes`    | s_t and a_t; the context is the history before t      | 1               |
| DPT    | `transitions` | uniform state, an action of the behavior policy       | 1               |
| DIT    | `episodes`    | any s_t of the context and a_t                        | lambda x return |
| DPT*   | `transitions` | uniform state, an optimal action (oracle upper bound) | 1               |
| SAD    | `transitions` | Algorithms 2, 3 or 5 by the behavior policy           | 1               |

For bandits the two kinds of context coincide.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Method:
    """Where in a dataset file a method finds its training examples, and what else is its own."""

    name: str
    """As in the paper and in configs."""
    slug: str
    """For file names."""
    color: str
    """In figures: Okabe and Ito's palette, which colour-blind readers can tell apart."""
    context: str
    """HDF5 group of the contexts: `context` (Algorithm 1) or `episodes` (rollouts)."""
    labels: str | None
    """HDF5 group of query states and action labels; None: the states and actions of the context
    itself, each after the transitions before it."""
    by_return: bool = False
    """Where `labels` is None: whether these are asked after any prefix of the context instead, and
    an answer's loss is multiplied by lambda x the query's discounted return-to-go."""
    sections: tuple[str, ...] = ()
    """Of a config, besides `model` and `pretrain`: what else decides the training."""
    loss_scale: str | None = None
    """The key of a config by which the loss is larger than that of the other methods."""
    revision: int = 0
    """Raised when what is asked changes: a model of the same config then has other weights."""
    baseline: bool = True
    """Whether SAD is compared with it, in the order of the paper's columns."""

    def longest_context(self, horizon: int) -> int:
        """Transitions of the longest context that its training asks after, of T.

        Of AD's questions the last one is asked after the T - 1 transitions before it.  No answer
        was ever trained by what the place of transition T says: an evaluation must not fill it.
        """
        return horizon if self.labels is not None or self.by_return else horizon - 1


METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        Method("AD", "ad", "#E69F00", "episodes", None),
        Method("DPT", "dpt", "#D55E00", "context", "labels/dpt"),
        Method(
            "DIT", "dit", "#009E73", "episodes", None, by_return=True,
            sections=("dit",), loss_scale="dit.weight", revision=1,
        ),
        Method("DPT*", "dpt_star", "#CC79A7", "context", "labels/dpt_star"),
        Method("SAD", "sad", "#0072B2", "context", "labels/sad", baseline=False),
    )
}  # fmt: skip

BASELINES = tuple(method.name for method in METHODS.values() if method.baseline)
"""DPT* is the oracle."""
