"""What is submitted, in which order, and after what."""

from sad_hpc.launch.graph import graph
from sad_hpc.launch.plan import batches, dependency, missing_steps
from sad_hpc.storage.run import Run
from tests.launch.conftest import complete, steps_of


def names(run: Run, active: dict[str, str]) -> list[str]:
    return [batch.name for batch in batches(missing_steps(graph(run), active))]


def test_everything_of_a_new_run(run: Run) -> None:
    planned = batches(missing_steps(graph(run), ()))
    assert [batch.name for batch in planned] == [
        "collect",
        *("pretrain-sad-seed0", "pretrain-sad-seed1"),
        *("pretrain-dpt_star-seed0", "pretrain-dpt_star-seed1"),
        "evaluate",
        "aggregate",
    ]
    assert [batch.elements for batch in planned] == [None] * 5 + [4, None]


def test_dependencies(run: Run) -> None:
    ids: dict[str, str] = {}
    clauses = {}
    for number, batch in enumerate(batches(missing_steps(graph(run), ()))):
        clauses[batch.name] = dependency(batch, ids)
        for index, step in enumerate(batch.steps):
            ids[step.title] = f"{number}_{index}" if batch.elements else str(number)
    assert clauses["collect"] is None
    assert clauses["pretrain-sad-seed1"] == "afterok:0"
    # One failed training must not keep the other models from their evaluation.
    assert clauses["evaluate"] == "afterok:0,afterany:1:2:3:4"
    assert clauses["aggregate"] == "afterok:5_0:5_1:5_2:5_3"


def test_complete_steps_are_skipped_and_no_dependency(run: Run) -> None:
    complete(*steps_of(run, "collect"), *steps_of(run, "pretrain"), steps_of(run, "evaluate")[0])
    planned = batches(missing_steps(graph(run), ()))
    assert [(batch.name, len(batch.steps)) for batch in planned] == [
        ("evaluate", 3),
        ("aggregate", 1),
    ]
    assert dependency(planned[0], {}) is None


def test_nothing_is_missing_in_a_complete_run(run: Run) -> None:
    complete(*graph(run))
    assert names(run, {}) == []


def test_active_jobs_are_kept(run: Run) -> None:
    active = {step.title: "1" for step in graph(run)}
    assert names(run, active) == []


def test_jobs_that_wait_in_vain_are_replaced(run: Run) -> None:
    complete(*steps_of(run, "collect"))
    # The training of the first model has failed; its evaluation and aggregate still wait for it.
    active = {step.title: "1" for step in graph(run)[2:]}
    missing = missing_steps(graph(run), active)
    assert [step.folder.path.name.rsplit("-", 1)[0] for step in missing[:2]] == ["sad-seed0"] * 2
    assert [step.stage for step in missing] == ["pretrain", "evaluate", "aggregate"]
