"""A second round on tables: its labels, its files on any number of ranks, and their resumption."""

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from sad_hpc.aggregate.stage import row_facts
from sad_hpc.collect.stage import collect
from sad_hpc.dataset.reader import read_columns
from sad_hpc.dataset.schema import Manifest
from sad_hpc.distill.block import Transitions
from sad_hpc.errors import CheckpointError
from sad_hpc.evaluate.policy import load_model, state_logits
from sad_hpc.evaluate.rollout_policy import rollout_policy
from sad_hpc.experiment.load import load_experiment
from sad_hpc.launch.graph import collect_with_policy
from sad_hpc.model.context import Context
from sad_hpc.pretrain.stage import pretrain
from sad_hpc.storage.run import Run
from tests.collect.test_collect import files
from tests.conftest import TINY
from tests.patience import HUNG

PARTS = ("states", "actions", "rewards", "next_states")
NAMES = (
    *(f"transitions/{part}" for part in PARTS),
    *("labels/sad/query_states", "labels/sad/actions", "tasks/parameters"),
)
TWO_ROUNDS = ("data.rounds=2", "data.trust_horizon=[3, 6]", "data.queries_per_task=3")
BIN = Path(sys.executable).parent


@pytest.fixture(scope="module")
def second(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run with the datasets of both rounds, and the model between them."""
    run = Run(load_experiment(TINY, TWO_ROUNDS), tmp_path_factory.mktemp("rounds"))
    before = run.round_before
    assert before is not None and before.experiment.data.trust_horizon == 3
    with pytest.raises(CheckpointError, match="not trained"):
        collect_with_policy(run)
    collect(before)
    pretrain(before, "SAD", 0)
    collect_with_policy(run)
    return run


def training_columns(run: Run) -> dict[str, np.ndarray]:
    folder = run.data().path / "train"
    return read_columns(folder, Manifest.load(folder), NAMES)


def test_labels_follow_the_first_rounds_model_greedily(second: Run) -> None:
    """Each is the action that reaches the goal first if the model goes on; ties are the model's."""
    family, before = second.experiment.family, second.round_before
    assert before is not None
    columns = training_columns(second)
    goals = columns["tasks/parameters"]
    model = load_model(before, "SAD", 0)
    context = Context.of_group(training_columns(before), "transitions")
    greedy = state_logits(model, family, context, 512).argmax(axis=2)
    assert 0.2 < (greedy[:, :, None] == greedy.mean(axis=1).round()[:, None, None]).mean() < 1
    mdps, tasks = family.mdps(goals), np.arange(len(goals))[:, None]
    steps = np.full((6 + 1, *mdps.sizes), 99)
    for left in range(1, 6 + 1):
        after = mdps.next_states
        later = steps[left - 1][tasks[..., None], after, greedy[tasks[..., None], after]]
        steps[left] = np.where(mdps.rewards > 0, 1, np.minimum(later + 1, 99))
    states = family.state_numbers(columns["labels/sad/query_states"])
    here, kept = steps[6][tasks, states], greedy[tasks, states]
    fewest = here.min(axis=2)
    assert (fewest <= 6).all()
    own = np.take_along_axis(here, kept[..., None], axis=2)[..., 0] == fewest
    assert own.any() and not own.all()
    expected = np.where(own, kept, here.argmin(axis=2))
    np.testing.assert_array_equal(columns["labels/sad/actions"], expected)


def test_half_of_the_contexts_are_episodes_of_the_first_rounds_model(second: Run) -> None:
    before, family = second.round_before, second.experiment.family
    assert before is not None
    first, columns = training_columns(before), training_columns(second)
    names = [f"transitions/{part}" for part in PARTS]
    differs = [(first[name] != columns[name]).reshape(len(first[name]), -1) for name in names]
    own = np.concatenate(differs, axis=1).any(axis=1)
    assert 0.4 < own.mean() < 0.6
    states, actions, rewards, after = (columns[name][own] for name in names)
    np.testing.assert_array_equal(states[:, 1:], after[:, :-1])
    assert (family.state_numbers(states[:, 0]) == family.starts(None)).all()
    mdps, tasks = family.mdps(columns["tasks/parameters"][own]), np.arange(own.sum())[:, None]
    key = tasks, family.state_numbers(states), actions
    np.testing.assert_array_equal(family.state_numbers(after), mdps.next_states[key])
    np.testing.assert_array_equal(rewards, mdps.rewards[key])
    folder = second.data().path
    test, old = (
        read_columns(each / "test", Manifest.load(each / "test"), names)
        for each in (folder, before.data().path)
    )
    assert all((test[name] == old[name]).all() for name in names)


def test_three_ranks_make_the_same_files_as_one(second: Run, tmp_path: Path) -> None:
    copy = Run(second.experiment, tmp_path / "runs")
    shutil.copytree(second.path, copy.path)
    shutil.rmtree(copy.data().path)
    command = [BIN / "mpiexec", "-n", "3", BIN / "sad-hpc", "collect", TINY, *TWO_ROUNDS]
    done = subprocess.run(
        [*map(str, command), "--runs", str(copy.runs)],
        capture_output=True, text=True, timeout=HUNG,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert files(copy) == files(second)


def test_a_round_resumes_with_what_is_missing(second: Run) -> None:
    before = files(second)
    kept, lost = (second.data().path / f"train/shard-0000{number}.h5" for number in (0, 1))
    time = kept.stat().st_mtime_ns
    lost.unlink()
    collect_with_policy(second)
    assert files(second) == before and kept.stat().st_mtime_ns == time


def test_the_cost_of_labels_counts_both_rounds(second: Run) -> None:
    before = second.round_before
    assert before is not None
    manifests = [Manifest.load(run.data().path / "train") for run in (before, second)]
    costs = [each.steps["labels_sad"] / each.n_tasks for each in manifests]
    costs[1] += manifests[1].steps["own_contexts"] / manifests[1].n_tasks
    assert row_facts(second)["SAD"].label_transitions == pytest.approx(sum(costs))
    assert row_facts(before)["SAD"].label_transitions == costs[0] < sum(costs)


def test_a_temperature_draws_the_incumbents_actions(second: Run) -> None:
    drawing = load_experiment(TINY, [*TWO_ROUNDS, "data.round_temperature=0.5"])
    columns = training_columns(second)
    context = Transitions(**{part: columns[f"transitions/{part}"] for part in PARTS})
    table = rollout_policy(Run(drawing, second.runs)).follow(context)
    assert table.bounds.shape == (len(context.actions), 9, 5)
