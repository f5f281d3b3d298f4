"""Deals numbered pieces of work to MPI ranks, and brings what they make of them to rank 0.

Plain messages, which every MPI does well over every network, and no one-sided ones.  Rank 0 works,
too, and answers between two pieces of its own; the others therefore begin with a piece that is
theirs without asking, and ask for their next ones before they begin the one at hand.
"""

import itertools
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

T = TypeVar("T")

ASKS, MADE, LEAVES = "asks", "made", "leaves"
"""What a rank tells rank 0; rank 0 sends back numbers, or None for the end."""

AHEAD = 2
"""Pieces that a rank asks for in advance: a piece of rank 0's may take twice as long as its own."""


def deal(
    communicator: Any,
    numbers: Sequence[int],
    schedule: str,
    work: Callable[[int], T],
    stop: Callable[[], bool],
) -> Iterator[T]:
    """Work on each number on one of the ranks; every rank iterates over this to its end.

    Args:
        communicator: MPI's, or a `SingleProcess`.
        numbers: what to do, the same on all ranks.
        schedule: `dynamic`, as ranks ask for it, or `static`, every nth number.
        work: makes a number's result; results travel as pickles.
        stop: whether this rank shall begin no more; if rank 0 stops, so do the others.

    Yields:
        On rank 0 the results of all ranks as they come, on the others nothing.
    """
    rank, size = communicator.Get_rank(), communicator.Get_size()
    static = schedule == "static"
    mine = numbers[rank::size] if static else numbers[rank : rank + 1]
    rest = [] if static else numbers[size:]
    if rank == 0:
        yield from _Leader(communicator, [*mine, *rest], stop).lead(work)
    else:
        _follow(communicator, mine, 0 if static else AHEAD, work, stop)


class _Leader:
    """Rank 0: what is left, who asks for it, and how many pieces each rank still has to make."""

    def __init__(self, communicator: Any, numbers: Sequence[int], stop: Callable[[], bool]) -> None:
        self._communicator, self._left, self._stop = communicator, deque(numbers), stop
        self._running = set(range(1, communicator.Get_size()))
        self._questions: list[int] = []
        """Ranks in the order in which they asked, each as often as it did."""
        self._pieces = Counter(self._running)
        """Of each rank, dealt and not yet made: each has begun with its first one."""

    def lead(self, work: Callable[[int], T]) -> Iterator[T]:
        """Work on what is dealt to nobody else; yields all results as they come."""
        while self._left and not self._stop():
            yield work(self._left.popleft())
            while self._running and self._has_mail():
                yield from self._hear()
            self._answer()
        while self._running:
            self._answer()
            yield from self._hear()

    def _has_mail(self) -> bool:
        # MPICH answers first and fetches its mail then: the first answer may be of long ago.
        return bool(self._communicator.iprobe() or self._communicator.iprobe())

    def _hear(self) -> Iterator[Any]:
        word, rank, content = self._communicator.recv()
        if word == MADE:
            self._pieces[rank] -= 1
            yield content
        elif word == LEAVES:
            self._running.remove(rank)
        else:
            self._questions.append(rank)

    def _answer(self) -> None:
        if not self._questions:
            return
        # Whoever has its share of what is not made yet is left to wait: near the end it would still
        # have what it asked for in advance when the others are done.
        share = (len(self._left) + self._pieces.total()) / self._communicator.Get_size()
        waiting = []
        for rank in self._questions:
            over = self._stop() or not self._left
            if not over and self._pieces[rank] >= share:
                waiting.append(rank)
                continue
            self._communicator.send(None if over else self._left.popleft(), dest=rank)
            self._pieces[rank] += not over
        self._questions = waiting


def _follow(
    communicator: Any,
    mine: Sequence[int],
    ahead: int,
    work: Callable[[int], T],
    stop: Callable[[], bool],
) -> None:
    """Work on `mine`, then on what rank 0 deals, which is asked for `ahead` pieces in advance."""
    rank, open_questions = communicator.Get_rank(), ahead
    question = (ASKS, rank, None)
    for _ in range(ahead):
        communicator.send(question, dest=0)
    for number in itertools.takewhile(lambda _: not stop(), mine):
        communicator.send((MADE, rank, work(number)), dest=0)
    while open_questions:
        number = communicator.recv(source=0)
        open_questions -= 1
        if number is None or stop():
            continue  # answers that are on their way still have to be received
        communicator.send(question, dest=0)
        open_questions += 1
        communicator.send((MADE, rank, work(number)), dest=0)
    communicator.send((LEAVES, rank, None), dest=0)
