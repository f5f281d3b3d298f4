"""The plan of a launch: batches, their order and their dependencies."""

from pathlib import Path

import pytest

from sad_hpc.experiment.load import parse_experiment
from sad_hpc.launch.graph import graph
from sad_hpc.launch.plan import batches, dependency, missing_steps
from sad_hpc.launch.status import Kind, step_states
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


ENVIRONMENT = {"family": "gymnasium", "env": "CartPole-v1", "horizon": 20}
TASKS = {
    "simulated": ENVIRONMENT | {"attributes": {"gravity": {"uniform": [5.0, 15.0]}}},
    "tabular": {"family": "darkroom", "size": 3, "horizon": 9, "train_goals": 6},
}
TWO_ROUNDS = ["SAD", {"name": "SAD, 2 rounds", "method": "SAD", "set": {"data.rounds": 2}}]


@pytest.fixture(params=TASKS)
def task(request: pytest.FixtureRequest) -> dict[str, object]:
    """Return a task of each kind of family that has later rounds."""
    return TASKS[request.param]


def rounds(tmp_path: Path, task: dict[str, object], **sections: object) -> Run:
    data = {"tasks": 400, "trust_horizon": 5, **sections.pop("data", {})}
    mapping = {"name": "again", "task": task, "data": data, "rows": ["SAD"], "seeds": [0, 1]}
    mapping |= {"pretrain": {"epochs": 1, "holdout_tasks": 50}, "evaluate": {"tasks": 20}}
    return Run(parse_experiment({**mapping, **sections}, "test"), tmp_path)


def test_a_further_round_waits_for_the_model_before_it(tmp_path: Path, task: dict) -> None:
    run = rounds(tmp_path, task, rows=TWO_ROUNDS)
    planned, ids, clauses = batches(missing_steps(graph(run), ())), {}, {}
    for number, batch in enumerate(planned):
        clauses[batch.name] = dependency(batch, ids)
        for index, step in enumerate(batch.steps):
            ids[step.title] = f"{number}_{index}" if batch.elements else str(number)
    seeds = ("pretrain-sad-seed0", "pretrain-sad-seed1")
    again = [f"{name}-round2" for name in ("collect", *seeds)]
    assert list(clauses) == ["collect", *seeds, *again, "evaluate", "aggregate"]
    assert clauses["collect-round2"] == "afterany:1"  # the model of the data's seed, 0
    assert clauses["pretrain-sad-seed1-round2"] == "afterok:3"


def test_what_no_row_shows_is_trained_for_the_next_round(tmp_path: Path, task: dict) -> None:
    run = rounds(tmp_path, task, data={"rounds": 3, "seed": 7})
    planned = batches(missing_steps(graph(run), ()))
    before = ["collect", "pretrain-sad-seed7", "collect-round2", "pretrain-sad-seed7-round2"]
    assert [batch.name for batch in planned][:5] == [*before, "collect-round3"]
    assert sum(step.stage == "evaluate" for step in graph(run)) == 2


def test_a_round_is_of_the_model_before_it(tmp_path: Path, task: dict) -> None:
    """Another training of round 1 makes other data in round 2, and only there."""
    plain, longer = (
        rounds(tmp_path, task, rows=TWO_ROUNDS, model={"layers": layers}) for layers in (3, 4)
    )
    first, second = zip(
        *([own.data().path for own in run.with_datasets()] for run in (plain, longer)), strict=True
    )
    assert first[0] == first[1] and second[0] != second[1]


def test_an_earlier_round_has_the_values_of_its_rounds(tmp_path: Path, task: dict) -> None:
    values = {"trust_horizon": [3, 3, 8], "discount": [0.9, 0.95, 0.99]}
    run = rounds(tmp_path, task, data={"rounds": 3, **values})
    second = run.round_before
    assert second is not None and second.round_before is not None
    first = second.round_before.experiment.data
    assert second.experiment.data.trust_horizon == 3  # as if it were the same for both rounds
    assert second.experiment.data.discount == [0.9, 0.95]
    assert (first.trust_horizon, first.discount, first.rounds) == (3, 0.9, 1)
    plain = rounds(tmp_path, task, data={"trust_horizon": 3})
    assert plain.data().path == second.round_before.data().path


def test_status_shows_the_steps_of_every_round(tmp_path: Path, task: dict) -> None:
    run = rounds(tmp_path, task, rows=TWO_ROUNDS)
    steps = graph(run)
    complete(*(step for step in steps if step.wave[0] == 1))
    shown = [(state.step.name, state.kind) for state in step_states(steps, {}, {})]
    assert len(shown) == 11  # of each round: collect, two trainings, two evaluations; aggregate
    complete_ones = [name for name, kind in shown if kind == Kind.COMPLETE]
    assert [name.split()[0] for name in complete_ones] == ["collect", "pretrain", "pretrain"]
    waiting = [name for name, kind in shown if kind != Kind.COMPLETE]
    assert [name.split()[0] for name in waiting][:3] == ["collect", "pretrain", "pretrain"]
    assert all(name.endswith("(SAD, 2 rounds)") for name in waiting[:3])


@pytest.mark.parametrize("vary", [["training", "split"], ["training", "data", "split"]])
def test_the_incumbent_of_a_replicate_is_of_its_split_and_data(tmp_path: Path, vary: list) -> None:
    run = rounds(tmp_path, TASKS["tabular"], data={"rounds": 2}, seeds=[3, 4], seeds_vary=vary)
    collects = [step for step in graph(run) if step.stage == "collect" and step.requires]
    assert len(collects) == 2
    for seed, step in zip(run.experiment.seeds, collects, strict=True):
        (incumbent,) = step.requires
        drawn = incumbent.run.experiment
        assert drawn.task.split_seed == step.run.experiment.task.split_seed == seed
        assert drawn.data.seed == step.run.experiment.data.seed == (seed if "data" in vary else 0)
        (found,) = incumbent.requires
        assert found.folder.path == incumbent.run.data().path
        before = step.run.round_before
        assert before is not None
        (element,) = before.experiment.elements
        assert before.checkpoint(*element).path == incumbent.folder.path
