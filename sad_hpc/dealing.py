"""Deals numbered pieces of work to MPI ranks, and brings what they make of them to rank 0.

Plain messages, which every MPI does well over every network, and no one-sided ones.  Rank 0 works,
too, and answers between two pieces of its own; the others therefore begin with a piece that is
theirs without asking, and ask for their next ones before they begin the one at hand.
"""

import itertools
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
    """Works on each number on one of the ranks; every rank iterates over this to its end.

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
        yield from _lead(communicator, itertools.chain(mine, rest), work, stop)
    else:
        _follow(communicator, mine, 0 if static else AHEAD, work, stop)


def _lead(
    communicator: Any, numbers: Iterator[int], work: Callable[[int], T], stop: Callable[[], bool]
) -> Iterator[T]:
    running = communicator.Get_size() - 1

    def heard(wait: bool) -> Iterator[T]:
        nonlocal running
        while running and (wait or communicator.iprobe()):
            word, content = communicator.recv()
            if word == MADE:
                yield content
            elif word == LEAVES:
                running -= 1
            else:
                communicator.send(None if stop() else next(numbers, None), dest=content)

    # Not `for number in numbers`: others are dealt from them meanwhile.
    while not stop() and (number := next(numbers, None)) is not None:
        yield work(number)
        yield from heard(wait=False)
    yield from heard(wait=True)


def _follow(
    communicator: Any,
    mine: Sequence[int],
    ahead: int,
    work: Callable[[int], T],
    stop: Callable[[], bool],
) -> None:
    """Works on `mine`, then on what rank 0 deals, which is asked for `ahead` pieces in advance."""
    question, open_questions = (ASKS, communicator.Get_rank()), ahead
    for _ in range(ahead):
        communicator.send(question, dest=0)
    for number in itertools.takewhile(lambda _: not stop(), mine):
        communicator.send((MADE, work(number)), dest=0)
    while open_questions:
        number = communicator.recv(source=0)
        open_questions -= 1
        if number is None or stop():
            continue  # answers that are on their way still have to be received
        communicator.send(question, dest=0)
        open_questions += 1
        communicator.send((MADE, work(number)), dest=0)
    communicator.send((LEAVES, None), dest=0)
