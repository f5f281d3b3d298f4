import dataclasses
import shutil
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch

from sad_hpc.aggregate.stage import row_facts
from sad_hpc.dataset.reader import read_columns
from sad_hpc.dataset.schema import Manifest
from sad_hpc.dataset.verify import verify
from sad_hpc.errors import DatasetError
from sad_hpc.experiment.methods import METHODS
from sad_hpc.experiment.sections import DataConfig, DITConfig
from sad_hpc.pretrain.examples import Examples
from sad_hpc.pretrain.importance import dit_weights, least_return, return_to_go, with_cuts
from sad_hpc.pretrain.training_columns import TrainingColumns
from sad_hpc.storage.run import Run
from sad_hpc.tasks.bandit import GaussianBanditConfig
from sad_hpc.tasks.base import make_family
from sad_hpc.tasks.darkroom import DarkroomConfig
from tests.dataset.test_dataset import list_again

CPU = torch.device("cpu")


def columns(run: Run, *names: str) -> list[np.ndarray]:
    folder = run.data().path / "train"
    found = read_columns(folder, Manifest.load(folder), names)
    return [found[name] for name in names]


@pytest.mark.parametrize("method", ["SAD", "DPT", "DPT*"])
def test_labelled_examples_are_those_of_the_dataset(tiny_run: Run, method: str):
    examples = Examples.load(TrainingColumns(tiny_run, method), CPU)
    group = METHODS[method].labels
    actions, queries, labels = columns(
        tiny_run, "transitions/actions", f"{group}/query_states", f"{group}/actions"
    )
    assert (examples.n_train, examples.n_holdout) == (600 - 64, 64)
    batch = examples.batch(torch.tensor([3, 535]), examples.draws(0, 0, 2))
    assert (batch.context.actions.numpy() == actions[[3, 535]]).all()
    assert (batch.queries.states.numpy() == queries[[3, 535]]).all()
    assert (batch.labels.numpy() == labels[[3, 535]]).all()
    held_out = examples.held_out(torch.tensor([599]))
    assert (held_out.queries.states.numpy() == queries[[599]]).all()
    assert (held_out.labels.numpy() == labels[[599]]).all()


def test_ad_learns_actions_of_episodes(tiny_run: Run):
    states, actions = columns(tiny_run, "episodes/states", "episodes/actions")
    examples = Examples.load(TrainingColumns(tiny_run, "AD"), CPU)
    batch = examples.batch(torch.tensor([5, 6]), examples.draws(0, 0, 2))
    assert (batch.queries.states.numpy() == states[[5, 6]]).all()
    assert (batch.labels.numpy() == actions[[5, 6]]).all()


def test_dit_weighs_an_action_by_its_return_to_go(tiny_run: Run):
    rewards = columns(tiny_run, "episodes/rewards")[0]
    examples = Examples.load(TrainingColumns(tiny_run, "DIT"), CPU)
    batch = examples.batch(torch.arange(50), examples.draws(0, 0, 50))
    assert batch.weights is not None and batch.weights.max() > 0
    for t in range(9):
        expected = sum(500 * 0.99 ** (k - t) * rewards[:50, k] for k in range(t, 9))
        assert batch.weights[:, t].numpy() == pytest.approx(expected, rel=1e-5)


def test_a_pull_of_a_bandit_weighs_its_own_reward_and_no_pair_less_than_the_floor():
    rewards = np.array([[0.5, -0.25, 1.0], [0.0, 0.125, 0.25]], np.float32)
    arms, rooms = make_family(GaussianBanditConfig()), make_family(DarkroomConfig(horizon=3))
    settings = DITConfig(weight=4.0, discount=0.5)
    assert dit_weights(arms, settings, {"rewards": rewards}).tolist() == (4 * rewards).tolist()
    expected = [[0.625 * 4, 0.25 * 4, 4.0], [0.125 * 4, 0.25 * 4, 1.0]]
    assert dit_weights(rooms, settings, {"rewards": rewards}).tolist() == expected
    twice = {"rewards": np.tile(rewards, (1, 2))}  # two episodes of a Q-learner
    assert dit_weights(rooms, settings, twice).tolist() == np.tile(expected, (1, 2)).tolist()
    floored = DITConfig(weight=4.0, discount=0.5, floor=0.5)
    lifted = np.maximum(expected, 2.0).tolist()
    assert dit_weights(rooms, floored, {"rewards": rewards}).tolist() == lifted


def test_return_to_go_is_the_discounted_sum_of_what_follows():
    rewards = np.array([[1, 0, 2], [0, 0, 0]], np.uint8)
    assert return_to_go(rewards, 0.5) == pytest.approx(np.array([[1.5, 1, 2], [0, 0, 0]]))


def test_dit_trains_towards_its_data_also_where_rewards_are_costs():
    costs = return_to_go(np.array([[-1, -4, -2], [-3, -3, 0]], np.float32), 0.5)
    assert least_return(costs.sum(), costs.min()) == costs.min()
    assert least_return(-costs.sum(), -costs.max()) == 0


def test_answers_are_ideal_only_where_contexts_are_random_ones(tiny_run: Run):
    source = TrainingColumns(tiny_run, "SAD")
    assert Examples.load(source, CPU).ideal is not None
    source.method = dataclasses.replace(source.method, context="episodes")
    assert Examples.load(source, CPU).ideal is None

    def known(**settings) -> bool:
        return DataConfig(tasks=10, trust_horizon=2, **settings).has_known_contexts

    assert known() and known(rounds=2, own_contexts=0.0)
    assert not known(rounds=2, own_contexts=0.5)
    assert not known(imported_contexts="minari-0123456789ab")


def test_every_rank_has_its_share_of_the_held_out_rows(tiny_run: Run):
    examples = Examples.load(TrainingColumns(tiny_run, "SAD"), CPU)
    rows = torch.cat([examples.holdout(rank, 3) for rank in range(3)])
    assert sorted(rows.tolist()) == list(range(536, 600))


def test_every_epoch_uses_every_example_once_in_an_order_of_its_own(tiny_run: Run):
    examples = Examples.load(TrainingColumns(tiny_run, "DPT"), CPU)
    first, second = examples.order(0, 0), examples.order(0, 1)
    assert sorted(first.tolist()) == list(range(536))
    assert not torch.equal(first, second)
    assert torch.equal(first, examples.order(0, 0))
    assert not torch.equal(first, examples.order(1, 0))


def test_the_return_to_go_ends_with_the_episode():
    rewards = np.array([[1, 2, 4, 8]], np.uint8)
    ends = np.array([[0, 1, 0, 0]], np.uint8)
    assert return_to_go(rewards, 0.5, ends).tolist() == [[2.0, 2.0, 8.0, 8.0]]


def test_no_return_goes_on_in_the_next_imported_episode():
    states = np.array([[[0], [1], [0], [1]]])
    context = {"states": states, "next_states": states + 1, "rewards": np.ones((1, 4))}
    assert with_cuts(context)["ends"].tolist() == [[0, 1, 0, 0]]
    ended = with_cuts(context | {"ends": np.array([[1, 0, 0, 0]], np.uint8)})
    assert ended["ends"].tolist() == [[1, 1, 0, 0]]


WRONG_LABELS = {
    "float64 numbers instead of integers": lambda labels: labels + 0.5,
    "numbers outside of 0 to 4": lambda labels: labels + 5,
    "has shape": lambda labels: labels[:, 0],
}


@pytest.mark.parametrize("words", sorted(WRONG_LABELS))
def test_labels_that_are_no_actions_are_refused(tiny_run: Run, tmp_path: Path, words: str):
    run = Run(tiny_run.experiment, tmp_path)
    shutil.copytree(tiny_run.data().path, run.data().path)
    dataset = run.data().path / "train"
    with h5py.File(dataset / "shard-00002.h5", "r+") as file:
        labels = file["labels/sad/actions"][()]
        del file["labels/sad/actions"]
        file["labels/sad/actions"] = WRONG_LABELS[words](labels)
    list_again(dataset, 2)
    with pytest.raises(DatasetError, match=f"shard-00002.h5: labels.*{words}") as raised:
        Examples.load(TrainingColumns(run, "SAD"), CPU)
    assert "\n" not in str(raised.value)
    assert any(words in fault for fault in verify(dataset).faults)
    assert np.isnan(row_facts(run)["SAD"].context_transitions)
    Examples.load(TrainingColumns(run, "DPT"), CPU)
