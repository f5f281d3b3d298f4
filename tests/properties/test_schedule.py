"""Any blocks, ranks and stops: each block is made once, each missing step submitted once."""

from collections import Counter
from itertools import chain, islice
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from sad_hpc.collect import turns
from sad_hpc.distributed import SharedCounter, SingleProcess
from sad_hpc.experiment_file import load_experiment
from sad_hpc.launch.graph import Step, graph
from sad_hpc.launch.plan import batches, dependency, missing_steps
from sad_hpc.run import Run
from tests.conftest import TINY


class Rank(SingleProcess):
    """One of several ranks."""

    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.size = rank, size

    def Get_rank(self) -> int:
        return self.rank

    def Get_size(self) -> int:
        return self.size


@given(st.integers(0, 300), st.integers(1, 40))
def test_static_turns_give_each_block_to_one_rank(blocks: int, ranks: int) -> None:
    dealt = [list(turns("static", blocks, Rank(rank, ranks), None)) for rank in range(ranks)]
    assert sorted(chain(*dealt)) == list(range(blocks))
    assert max(map(len, dealt)) - min(map(len, dealt)) <= 1


@given(st.integers(0, 50), st.lists(st.integers(0, 20), max_size=6))
def test_dynamic_turns_go_on_where_others_stopped(blocks: int, stops: list[int]) -> None:
    """Takers of one counter, of which each takes some and leaves; the last one takes the rest."""
    counter, taken = SharedCounter(SingleProcess()), []
    for stop in stops:
        taken += islice(turns("dynamic", blocks, SingleProcess(), counter), stop)
    taken += turns("dynamic", blocks, SingleProcess(), counter)
    assert taken == list(range(blocks))


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
        made[step.title] = MadeUp(step.folder, requires, step.element)
        object.__setattr__(made[step.title], "done", number in complete)
    return list(made.values())


@given(st.sets(st.integers(0, 13)), st.sets(st.integers(0, 13)))
def test_each_missing_step_is_submitted_once_and_after_what_it_reads(
    complete: set[int], queued: set[int]
) -> None:
    steps = steps_with(complete)
    active = {s.title: f"a{n}" for n, s in enumerate(steps) if n in queued and not s.complete}
    missing = missing_steps(steps, active)
    planned = batches(missing)
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
