"""Questions of a training, by method and kind of family.

| class         | used for               | queries x prefixes       | label                       |
|---------------|------------------------|--------------------------|-----------------------------|
| `EveryPrefix` | one query a task       | 1 x (0..T)               | the query's                 |
|               | bandits                | 1 x (0..T)               | one of K, drawn             |
| `Packed`      | K > 1 queries a task   | K x (one, drawn in 0..T) | the query's                 |
| `OwnActions`  | AD                     | T x (t)                  | a_t                         |
| `OwnPulls`    | AD on bandits          | 1 x (0..T)               | a_t; none after T           |
| `AnyPrefix`   | DIT                    | T x (one, drawn in 0..T) | a_t                         |
| `PastPrefix`  | DIT, `prefixes: past`  | T x (one, drawn in 0..t) | a_t                         |

Bandits have one state, so a context's own tokens answer after each prefix.  DIT on bandits uses
`EveryPrefix` with the T pulls as labels.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from sad_hpc.experiment.methods import Method
from sad_hpc.model.bins import bins_of
from sad_hpc.model.context import Context, Queries

Columns = Mapping[str, Tensor]


@dataclass(frozen=True)
class Batch:
    """B examples on the device, with K = Q P questions each."""

    context: Context
    """(B, T)"""
    queries: Queries
    """Q states, each after P prefixes."""
    labels: Tensor
    """(B, K) in the dataset's dtype, or (B, K, a) vectors; int64 numbers once `answerable`"""
    weights: Tensor | None
    """(B, K) float32: weight of each answer in the loss; None: all are 1."""
    judged: slice
    """The questions, among K, whose answers count for label accuracy."""

    def split(self, parts: int) -> list["Batch"]:
        """Return the examples in parts of equal size."""
        if parts == 1:
            return [self]
        size = len(self.labels) // parts
        return [self._rows(slice(first, first + size)) for first in range(0, parts * size, size)]

    def _rows(self, rows: slice) -> "Batch":
        context, queries = self.context.map(lambda part: part[rows]), self.queries
        parts = {name: part[rows] for name, part in vars(queries).items() if part is not None}
        if queries.states is self.context.states:  # the model encodes these once
            parts["states"] = context.states
        weights = None if self.weights is None else self.weights[rows]
        return Batch(context, Queries(**parts), self.labels[rows], weights, self.judged)


class Questions(ABC):
    """The questions of examples with contexts of T transitions.

    Args:
        columns: of a dataset, see `Examples`.
    """

    draws: tuple[int, int] = (0, 1)
    """(D, n): number of random numbers of an example, each uniform in 0..n-1."""

    def __init__(self, columns: Columns) -> None:
        self.columns = columns
        self.horizon = columns["actions"].shape[1]

    @property
    @abstractmethod
    def tokens(self) -> int:
        """Number of transitions and queries of an example that pass through the model."""

    @abstractmethod
    def batch(self, context: Context, rows: Tensor, drawn: Tensor) -> Batch:
        """Return the questions of some rows.

        Args:
            context: (B, T), the rows' contexts.
            rows: (B,) row numbers.
            drawn: (B, D) random numbers; see `draws`.
        """

    def every_prefix(self, rows: Tensor) -> Tensor:
        """Return the prefixes 0 to T of each row, (B, 1, T + 1)."""
        return torch.arange(self.horizon + 1, device=rows.device).expand(len(rows), 1, -1)

    def weights(self, rows: Tensor) -> Tensor | None:
        """Return the weights (B, K) of the labels of some rows; None: all are 1."""
        weights = self.columns.get("weights")
        return None if weights is None else weights[rows]


class EveryPrefix(Questions):
    """The paper's objective: the task's first query after every prefix of the context.

    Prefixes include the empty one, the context of the first online episode.  If there is only one
    state, each prefix has a random one of the K labels.  Label accuracy is measured after the whole
    context.

    Args:
        columns: columns of a dataset; see `Examples`.
        stateless: whether there is only one state.
    """

    def __init__(self, columns: Columns, stateless: bool) -> None:
        super().__init__(columns)
        self._stateless = stateless
        self.draws = self.horizon + 1, columns["labels"].shape[1] if stateless else 1

    @property
    def tokens(self) -> int:
        """Implement `Questions.tokens`."""
        return self.horizon + (1 if self._stateless else self.horizon + 1)

    def batch(self, context: Context, rows: Tensor, drawn: Tensor) -> Batch:
        """Implement `Questions.batch`."""
        images = self.columns["query_images"][rows, :1] if context.images is not None else None
        states = self.columns["query_states"][rows, :1]
        labels = self.columns["labels"][rows.unsqueeze(1), drawn]
        weights = self.weights(rows)
        return Batch(
            context,
            Queries(states, self.every_prefix(rows), images),
            labels,
            None if weights is None else weights.gather(1, drawn),
            slice(self.horizon, None),
        )


class Packed(Questions):
    """K queries a task, each after one prefix drawn uniformly from 0..T."""

    def __init__(self, columns: Columns) -> None:
        super().__init__(columns)
        self.draws = columns["labels"].shape[1], self.horizon + 1

    @property
    def tokens(self) -> int:
        """Implement `Questions.tokens`."""
        return self.horizon + self.draws[0]

    def batch(self, context: Context, rows: Tensor, drawn: Tensor) -> Batch:
        """Implement `Questions.batch`; queries are sorted by prefix, which is faster in kernels."""
        prefixes, order = drawn.sort(dim=1)
        which = rows.unsqueeze(1), order
        images = self.columns["query_images"][which] if context.images is not None else None
        queries = Queries(self.columns["query_states"][which], prefixes.unsqueeze(2), images)
        return Batch(context, queries, self.columns["labels"][which], None, slice(None))


class OwnActions(Questions):
    """AD: every state s_t of the context after the transitions before it, with label a_t."""

    @property
    def tokens(self) -> int:
        """Implement `Questions.tokens`."""
        return 2 * self.horizon

    def batch(self, context: Context, rows: Tensor, drawn: Tensor) -> Batch:
        """Implement `Questions.batch`."""
        prefixes = self.prefixes(rows, drawn).unsqueeze(2)
        # The context's own states and images, not copies: the model encodes these once.
        queries = Queries(context.states, prefixes, context.images)
        return Batch(context, queries, context.actions, self.weights(rows), slice(None))

    def prefixes(self, rows: Tensor, drawn: Tensor) -> Tensor:
        """Return the number of transitions before the question of each s_t, (B, T)."""
        return self.every_prefix(rows)[:, 0, :-1]


class AnyPrefix(OwnActions):
    """DIT: every state s_t of the context after a prefix drawn uniformly from 0..T, with label a_t.

    As in DPT, the query does not depend on the prefix.  A prefix longer than t has the labelled
    transition.
    """

    def __init__(self, columns: Columns) -> None:
        super().__init__(columns)
        self.draws = self.horizon, self.horizon + 1

    def prefixes(self, rows: Tensor, drawn: Tensor) -> Tensor:
        """Implement `OwnActions.prefixes`."""
        return drawn


class PastPrefix(AnyPrefix):
    """DIT without the labelled transition in the prefix, which is drawn from 0..t for s_t."""

    def prefixes(self, rows: Tensor, drawn: Tensor) -> Tensor:
        """Implement `OwnActions.prefixes`: t + 1 equal parts of 0..T."""
        counts = torch.arange(1, self.horizon + 1, device=drawn.device)
        return drawn * counts // (self.horizon + 1)


class OwnPulls(Questions):
    """`OwnActions` for bandits: the answer after the whole context has no label and weight 0.

    The other weights are (T + 1) / T, so that the mean over T + 1 answers is the mean over T.
    """

    @property
    def tokens(self) -> int:
        """Implement `Questions.tokens`."""
        return self.horizon + 1

    def batch(self, context: Context, rows: Tensor, drawn: Tensor) -> Batch:
        """Implement `Questions.batch`."""
        weights = torch.full(context.actions.shape, (self.horizon + 1) / self.horizon)
        return Batch(
            context,
            Queries(context.states[:, :1], self.every_prefix(rows)),
            F.pad(context.actions, (0, 1)),
            F.pad(weights.to(rows.device), (0, 1)),
            slice(self.horizon),
        )


def answerable(batch: Batch, bins: int) -> Batch:
    """Convert the labels of a batch to class numbers, (B, K) int64.

    If actions are vectors, each component is a question with a bin as label, which holds the
    label's components before it, and K grows by a factor of a.
    """
    if batch.labels.ndim == 2:
        return replace(batch, labels=batch.labels.long())
    size, judged = batch.labels.shape[2], batch.judged
    first = None if judged.start is None else size * judged.start
    last = None if judged.stop is None else size * judged.stop
    weights = batch.weights
    return replace(
        batch,
        queries=replace(batch.queries, actions=batch.labels),
        labels=bins_of(batch.labels, bins).flatten(1),
        weights=None if weights is None else weights.repeat_interleave(size, dim=1),
        judged=slice(first, last),
    )


def make_questions(
    method: Method, columns: Columns, stateless: bool, past: bool, held_out: bool
) -> Questions:
    """Return the questions of a method's training, or those of its held-out tasks.

    Held-out tasks have the paper's objective for any number of queries, so that losses and
    accuracies are comparable between one query a task and many.  Both objectives have the same
    expectation, because a query's prefix is uniform in 0..T.

    Args:
        method: of the training.
        columns: the dataset's columns.
        stateless: whether tasks have no states.
        past: value of `dit.prefixes == "past"`.
        held_out: whether the questions are those of held-out tasks.
    """
    if method.labels is None:
        return _own_questions(method, columns, stateless, past)
    if held_out or stateless or columns["labels"].shape[1] == 1:
        return EveryPrefix(columns, stateless)
    return Packed(columns)


def _own_questions(method: Method, columns: Columns, stateless: bool, past: bool) -> Questions:
    """Return questions whose queries and labels are the context's own states and actions."""
    if not method.by_return:
        return OwnPulls(columns) if stateless else OwnActions(columns)
    if not stateless:
        return PastPrefix(columns) if past else AnyPrefix(columns)
    own = {"query_states": columns["states"], "labels": columns["actions"]}
    return EveryPrefix({**columns, **own}, stateless)
