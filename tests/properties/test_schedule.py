"""Any blocks, ranks and stops: each block is made once, each missing step is submitted once."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path
from queue import Queue
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sad_hpc.collect.work_queue import AHEAD, deal
from sad_hpc.experiment.load import load_experiment
from sad_hpc.launch.graph import Step, graph
from sad_hpc.launch.plan import batches, dependency, missing_steps
from sad_hpc.storage.run import Run
from tests.conftest import TINY
from tests.patience import HUNG

pytestmark = pytest.mark.faults


class Mail:
    """The part of a communicator that `deal` uses, between threads."""

    def __init__(self, rank: int, boxes: "list[Queue[Any]]") -> None:
        self._rank, self._boxes = rank, boxes

    def Get_rank(self) -> int:
        return self._rank

    def Get_size(self) -> int:
        return len(self._boxes)

    def send(self, message: Any, dest: int) -> None:
        self._boxes[dest].put(message)

    def recv(self, source: int | None = None) -> Any:
        return self._boxes[self._rank].get(timeout=HUNG)

    def iprobe(self) -> bool:
        return not self._boxes[self._rank].empty()


@given(
    schedule=st.sampled_from(["dynamic", "static"]),
    numbers=st.lists(st.integers(), max_size=40, unique=True),
    stops=st.lists(st.none() | st.integers(0, 10), min_size=1, max_size=5),
)
def test_each_number_is_worked_on_once_and_its_result_reaches_rank_0(
    schedule: str, numbers: list[int], stops: list[int | None]
) -> None:
    """One rank for each of `stops`: the results after which it is told to stop, if ever."""
    boxes: list[Queue[Any]] = [Queue() for _ in stops]
    shares: list[list[int]] = [[] for _ in stops]

    def rank(number: int) -> list[int]:
        mine, stop = shares[number], stops[number]

        def work(piece: int) -> int:
            mine.append(piece)
            return piece

        told = (lambda: False) if stop is None else (lambda: len(mine) >= stop)
        return list(deal(Mail(number, boxes), numbers, schedule, work, told))

    with ThreadPoolExecutor(len(stops)) as pool:
        made = list(pool.map(rank, range(len(stops))))
    worked = list(chain(*shares))
    assert Counter(made[0]) == Counter(worked) and not any(made[1:])
    assert len(worked) == len(set(worked)) and set(worked) <= set(numbers)
    assert all(box.empty() for box in boxes), "a message was left"
    for number, (share, stop) in enumerate(zip(shares, stops, strict=True)):
        assert stop is None or len(share) <= stop
        # No rank waits for rank 0 to begin.
        assert stop == 0 or share[:1] == numbers[number : number + 1]
    if stops[0] is None and (schedule == "dynamic" or set(stops) == {None}):
        # Numbers that a stopped rank was given, but has not begun, are lost until the next start.
        lost = (AHEAD + 1) * sum(stop is not None for stop in stops)
        assert len(worked) >= len(numbers) - lost


class MadeUp(Step):
    """A step that is complete because the test says so."""

    done: bool = False

    @property
    def complete(self) -> bool:
        return self.done


def steps_with(complete: set[int]) -> list[Step]:
    run = Run(load_experiment(TINY, ["seeds=[0, 1, 2]"]), Path("runs"))
    made: dict[str, Any] = {}
    for number, step in enumerate(graph(run)):
        requires = tuple(made[required.title] for required in step.requires)
        made[step.title] = MadeUp(step.folder, step.run, requires, step.element)
        object.__setattr__(made[step.title], "done", number in complete)
    return list(made.values())


@given(st.sets(st.integers(0, 13)), st.sets(st.integers(0, 13)), st.integers(1, 7))
def test_each_missing_step_is_submitted_once_and_after_what_it_reads(
    complete: set[int], queued: set[int], largest: int
) -> None:
    steps = steps_with(complete)
    active = {s.title: f"a{n}" for n, s in enumerate(steps) if n in queued and not s.complete}
    missing = missing_steps(steps, active)
    planned = batches(missing, largest)
    assert max((len(batch.steps) for batch in planned), default=1) <= largest
    assert len({batch.name for batch in planned}) == len(planned)
    counted = Counter(step.title for batch in planned for step in batch.steps)
    assert set(counted.values()) <= {1}
    for step in steps:
        vain = any(required.title in counted for required in step.requires)
        assert (step.title in counted) == (not step.complete and (step.title not in active or vain))
    ids = {title: job for title, job in active.items() if title not in counted}
    for number, batch in enumerate(planned):
        after = dependency(batch, ids) or ""
        needed = {ids[r.title] for s in batch.steps for r in s.requires if not r.complete}
        words = after.replace(",", ":").split(":")
        assert needed == {word for word in words if word and not word.startswith("after")}
        ids |= {step.title: f"j{number}" for step in batch.steps}
