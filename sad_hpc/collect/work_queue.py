"""A queue of numbered pieces of work for MPI ranks, whose results go to rank 0.

It uses point-to-point messages only, which are fast in every MPI on every network.  Rank 0 also
works, and answers requests between two pieces.  The other ranks therefore begin with a fixed piece,
and request pieces in advance.
"""

import itertools
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

T = TypeVar("T")

ASKS, MADE, LEAVES = "asks", "made", "leaves"
"""Messages to rank 0, which answers a request with a number, or with None at the end."""

AHEAD = 2
"""Pieces that a rank requests in advance, because rank 0 can take twice as long for a piece."""


def deal(
    communicator: Any,
    numbers: Sequence[int],
    schedule: str,
    work: Callable[[int], T],
    stop: Callable[[], bool],
) -> Iterator[T]:
    """Work on each number on one of the ranks; every rank iterates over this to its end.

    Args:
        communicator: an MPI communicator or a `SingleProcess`.
        numbers: pieces of work, the same on all ranks.
        schedule: `dynamic`, on request, or `static`, every nth number.
        work: function that returns a number's result; results are sent as pickles.
        stop: whether this rank must start no other piece; if rank 0 stops, so do the others.

    Yields:
        The results of all ranks on rank 0, in order of arrival; nothing on the others.
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
    """State of rank 0: the remaining numbers, pending requests, and unfinished pieces by rank."""

    def __init__(self, communicator: Any, numbers: Sequence[int], stop: Callable[[], bool]) -> None:
        self._communicator, self._left, self._stop = communicator, deque(numbers), stop
        self._running = set(range(1, communicator.Get_size()))
        self._questions: list[int] = []
        """Ranks with pending requests, in order of the requests."""
        self._pieces = Counter(self._running)
        """Unfinished pieces of each rank; each has already begun its first one."""

    def lead(self, work: Callable[[int], T]) -> Iterator[T]:
        """Work on the remaining numbers, and yield all results in order of arrival."""
        while self._left and not self._stop():
            yield work(self._left.popleft())
            while self._running and self._has_mail():
                yield from self._hear()
            self._answer()
        while self._running:
            self._answer()
            yield from self._hear()

    def _has_mail(self) -> bool:
        # MPICH answers before it polls the network, so the first answer can be outdated.
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
        # A rank with its share of the unfinished pieces waits; otherwise it would still have
        # requested pieces when the others are done.
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
    """Work on `mine`, then on numbers from rank 0, with `ahead` requests in advance."""
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
            continue  # pending answers must still be received
        communicator.send(question, dest=0)
        open_questions += 1
        communicator.send((MADE, rank, work(number)), dest=0)
    communicator.send((LEAVES, rank, None), dest=0)
