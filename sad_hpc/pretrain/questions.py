"""What a training asks behind its contexts, by method and by kind of family.

| class         | of                     | queries x prefixes       | label                       |
|---------------|------------------------|--------------------------|-----------------------------|
| `EveryPrefix` | one query a task       | 1 x (0..T)               | the query's                 |
|               | ... and all of bandits |                          | ... or one of K, drawn      |
| `Packed`      | K > 1 queries a task   | K x (one, drawn in 0..T) | the query's                 |
| `OwnActions`  | AD                     | T x (t)                  | a_t, after what came before |
| `OwnPulls`    | ... of bandits         | 1 x (0..T)               | the same, and none after T  |
| `AnyPrefix`   | DIT                    | T x (one, drawn in 0..T) | a_t                         |

Bandits have one state: nothing but a context's own tokens is needed to answer after each prefix.
DIT's questions of bandits are `EveryPrefix`, with the T pulls as labels.
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
    """(B, K) float32: of each answer in the loss; None: all are 1."""
    judged: slice
    """Of the K questions, those whose answers count for label accuracy."""


class Questions(ABC):
    """A way of asking behind contexts of T transitions.

    Args:
        columns: of a dataset, see `Examples`.
    """

    draws: tuple[int, int] = (0, 1)
    """(D, n): how many random numbers an example needs, each uniform in 0..n-1."""

    def __init__(self, columns: Columns) -> None:
        self.columns = columns
        self.horizon = columns["actions"].shape[1]

    @property
    @abstractmethod
    def tokens(self) -> int:
        """Transitions and queries of an example that pass through the model."""

    @abstractmethod
    def batch(self, context: Context, rows: Tensor, drawn: Tensor) -> Batch:
        """The questions behind the contexts of some rows.

        Args:
            context: (B, T), of these rows.
            rows: (B,) of the columns.
            drawn: (B, D), see `draws`.
        """

    def every_prefix(self, rows: Tensor) -> Tensor:
        """Return 0 to T, (B, 1, T + 1)."""
        return torch.arange(self.horizon + 1, device=rows.device).expand(len(rows), 1, -1)

    def weights(self, rows: Tensor) -> Tensor | None:
        """(B, K) of the labels of some rows; None: all are 1."""
        weights = self.columns.get("weights")
        return None if weights is None else weights[rows]


class EveryPrefix(Questions):
    """The paper's objective: the task's first query, asked after every prefix of the context.

    The empty one counts too: it is what an online episode starts from.  Where the labels of K
    queries of the only state are used, each prefix has one of them, drawn.  Label accuracy is that
    after the whole context.

    Args:
        columns: of a dataset, see `Examples`.
        stateless: whether there is one state only.
    """

    def __init__(self, columns: Columns, stateless: bool) -> None:
        super().__init__(columns)
        self._stateless = stateless
        self.draws = self.horizon + 1, columns["labels"].shape[1] if stateless else 1

    @property
    def tokens(self) -> int:
        """See Questions."""
        return self.horizon + (1 if self._stateless else self.horizon + 1)

    def batch(self, context: Context, rows: Tensor, drawn: Tensor) -> Batch:
        """See Questions."""
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
    """K queries a task, each after one prefix of its own, uniform in 0..T."""

    def __init__(self, columns: Columns) -> None:
        super().__init__(columns)
        self.draws = columns["labels"].shape[1], self.horizon + 1

    @property
    def tokens(self) -> int:
        """See Questions."""
        return self.horizon + self.draws[0]

    def batch(self, context: Context, rows: Tensor, drawn: Tensor) -> Batch:
        """See Questions; queries come in the order of their prefixes, which kernels prefer."""
        prefixes, order = drawn.sort(dim=1)
        which = rows.unsqueeze(1), order
        images = self.columns["query_images"][which] if context.images is not None else None
        queries = Queries(self.columns["query_states"][which], prefixes.unsqueeze(2), images)
        return Batch(context, queries, self.columns["labels"][which], None, slice(None))


class OwnActions(Questions):
    """AD: every state s_t of the context, after the transitions before it; a_t."""

    @property
    def tokens(self) -> int:
        """See Questions."""
        return 2 * self.horizon

    def batch(self, context: Context, rows: Tensor, drawn: Tensor) -> Batch:
        """See Questions."""
        prefixes = self.prefixes(rows, drawn).unsqueeze(2)
        # The context's own states and images, not copies: the model encodes these once.
        queries = Queries(context.states, prefixes, context.images)
        return Batch(context, queries, context.actions, self.weights(rows), slice(None))

    def prefixes(self, rows: Tensor, drawn: Tensor) -> Tensor:
        """Return after how many transitions each s_t is asked, (B, T)."""
        return self.every_prefix(rows)[:, 0, :-1]


class AnyPrefix(OwnActions):
    """DIT: every state s_t of the context, after a prefix drawn for it, uniform in 0..T; a_t.

    DIT keeps DPT's structure: what is asked does not depend on the prefix after which it is asked.
    One longer than t shows the answer, and what came of it.
    """

    def __init__(self, columns: Columns) -> None:
        super().__init__(columns)
        self.draws = self.horizon, self.horizon + 1

    def prefixes(self, rows: Tensor, drawn: Tensor) -> Tensor:
        """See OwnActions."""
        return drawn


class OwnPulls(Questions):
    """`OwnActions` of bandits: the answer after the whole context, which nothing follows, counts 0.

    The other weights are larger by (T + 1) / T: the mean over T + 1 answers is the mean over T.
    """

    @property
    def tokens(self) -> int:
        """See Questions."""
        return self.horizon + 1

    def batch(self, context: Context, rows: Tensor, drawn: Tensor) -> Batch:
        """See Questions."""
        weights = torch.full(context.actions.shape, (self.horizon + 1) / self.horizon)
        return Batch(
            context,
            Queries(context.states[:, :1], self.every_prefix(rows)),
            F.pad(context.actions, (0, 1)),
            F.pad(weights.to(rows.device), (0, 1)),
            slice(self.horizon),
        )


def answerable(batch: Batch, bins: int) -> Batch:
    """With labels that a model's answers can be compared with: (B, K) int64.

    Of vectors each component is a question of its own, and its label a bin: K is a times as large.
    """
    if batch.labels.ndim == 2:
        return replace(batch, labels=batch.labels.long())
    size, judged = batch.labels.shape[2], batch.judged
    first = None if judged.start is None else size * judged.start
    last = None if judged.stop is None else size * judged.stop
    weights = batch.weights
    return replace(
        batch,
        labels=bins_of(batch.labels, bins).flatten(1),
        weights=None if weights is None else weights.repeat_interleave(size, dim=1),
        judged=slice(first, last),
    )


def training_questions(method: Method, columns: Columns, stateless: bool) -> Questions:
    """What a method's training asks."""
    if method.labels is None:
        return _own_questions(method, columns, stateless)
    if stateless or columns["labels"].shape[1] == 1:
        return EveryPrefix(columns, stateless)
    return Packed(columns)


def holdout_questions(method: Method, columns: Columns, stateless: bool) -> Questions:
    """What held-out tasks are asked: the paper's objective, however many queries a task has.

    Losses and accuracies of one query a task and of many can be compared in this way, and both
    objectives have the same expectation: a query's prefix is uniform in 0..T.
    """
    if method.labels is None:
        return _own_questions(method, columns, stateless)
    return EveryPrefix(columns, stateless)


def _own_questions(method: Method, columns: Columns, stateless: bool) -> Questions:
    """Whose queries and labels are the context's own states and actions."""
    if not method.by_return:
        return OwnPulls(columns) if stateless else OwnActions(columns)
    if not stateless:
        return AnyPrefix(columns)
    own = {"query_states": columns["states"], "labels": columns["actions"]}
    return EveryPrefix({**columns, **own}, stateless)
