"""The record of a method; other packages make such records for entry points (see `methods`)."""

from dataclasses import dataclass

RANDOM_PLAY = "labels/dpt"
"""HDF5 group of the labels that are actions of the behavior policy."""


@dataclass(frozen=True)
class Method:
    """A method: its training examples in a dataset file, its names and its settings."""

    name: str
    """The name in the paper and in configs."""
    slug: str
    """The name in file names."""
    color: str
    """The color in figures, from Okabe and Ito's palette for color-blind readers."""
    context: str
    """HDF5 group of the contexts: `transitions` (Algorithm 1) or `episodes` (rollouts)."""
    labels: str | None
    """HDF5 group of query states and action labels.  None: each state of the context is a query
    after the transitions before it, and its action is the label."""
    by_return: bool = False
    """If `labels` is None: query a state after any prefix of the context, and multiply the loss by
    lambda x the query's discounted return-to-go."""
    sections: tuple[str, ...] = ()
    """Config sections besides `model` and `pretrain` that decide the training."""
    loss_scale: str | None = None
    """Config key of the factor by which the loss exceeds that of the other methods."""
    revision: int = 0
    """Increased when the training examples change: the same config then gives other weights."""
    baseline: bool = True
    """True if tables compare SAD with this method, in the order of the paper's columns."""

    @property
    def imitates(self) -> bool:
        """True if its labels are actions of the policy that made the data, all of one weight."""
        return self.labels == RANDOM_PLAY or (self.labels is None and not self.by_return)

    def longest_context(self, horizon: int) -> int:
        """Return the number of transitions in the longest context of the training, given T.

        AD's last query follows T - 1 transitions.  Position T of its context is never trained, so
        an evaluation must leave it empty.
        """
        return horizon if self.labels is not None or self.by_return else horizon - 1
