import numpy as np
import pytest
import torch

from sad_hpc.dataset.reader import read_columns
from sad_hpc.dataset.schema import Manifest
from sad_hpc.experiment.methods import METHODS
from sad_hpc.pretrain.examples import Examples, return_to_go
from sad_hpc.pretrain.stage import action_loss
from sad_hpc.storage.run import Run

CPU = torch.device("cpu")


def columns(run: Run, *names: str) -> list[np.ndarray]:
    folder = run.data().path / "train"
    found = read_columns(folder, Manifest.load(folder), names)
    return [found[name] for name in names]


@pytest.mark.parametrize("method", ["SAD", "DPT", "DPT*"])
def test_labelled_examples_are_those_of_the_dataset(tiny_run: Run, method: str):
    examples = Examples.load(tiny_run, method, CPU)
    group = METHODS[method].labels
    actions, queries, labels = columns(
        tiny_run, "context/actions", f"{group}/query_states", f"{group}/actions"
    )
    assert (examples.n_train, examples.n_holdout) == (600 - 64, 64)
    batch = examples.batch(torch.tensor([3, 599]), torch.tensor([0, 0]))
    assert (batch.context.actions.numpy() == actions[[3, 599]]).all()
    assert (batch.query_states.numpy() == queries[[3, 599]]).all()
    assert (batch.labels.numpy() == labels[[3, 599]]).all()
    assert batch.weights is None
    assert (batch.answer_at == 9).all()


def test_ad_learns_the_next_action_from_the_history_before_it(tiny_run: Run):
    states, actions = columns(tiny_run, "episodes/states", "episodes/actions")
    rows, times = torch.tensor([5, 6, 7]), torch.tensor([0, 4, 8])
    batch = Examples.load(tiny_run, "AD", CPU).batch(rows, times)
    assert (batch.query_states.numpy() == states[[5, 6, 7], [0, 4, 8]]).all()
    assert (batch.labels.numpy() == actions[[5, 6, 7], [0, 4, 8]]).all()
    logits = torch.randn(3, 10, 5, generator=torch.Generator().manual_seed(0))
    chances = torch.log_softmax(logits, -1)[torch.arange(3), times, batch.labels]
    loss = action_loss(logits, batch.labels, batch.weights)
    assert loss.item() == pytest.approx(-chances.mean().item(), rel=1e-5)


def test_dit_weighs_an_action_by_its_return_to_go(tiny_run: Run):
    states, actions, rewards = columns(
        tiny_run, "episodes/states", "episodes/actions", "episodes/rewards"
    )
    rows, times = torch.arange(50), torch.arange(50) % 9
    batch = Examples.load(tiny_run, "DIT", CPU).batch(rows, times)
    for row, t in zip(rows.tolist(), times.tolist(), strict=True):
        expected = 500 * sum(0.99 ** (k - t) * rewards[row, k] for k in range(t, 9))
        assert batch.weights is not None
        assert batch.weights[row].tolist() == pytest.approx([expected] * 10, rel=1e-5)
        assert (batch.query_states[row].numpy() == states[row, t]).all()
        assert batch.labels[row] == actions[row, t]
    assert batch.weights.max() > 0


def test_return_to_go_is_the_discounted_sum_of_what_follows():
    rewards = np.array([[1, 0, 2], [0, 0, 0]], np.uint8)
    assert return_to_go(rewards, 0.5) == pytest.approx(np.array([[1.5, 1, 2], [0, 0, 0]]))


def test_weights_of_1_are_no_weights():
    logits = torch.randn(4, 10, 5, generator=torch.Generator().manual_seed(0))
    labels = torch.tensor([0, 1, 2, 3])
    weighted = action_loss(logits, labels, torch.ones(4, 10))
    assert weighted.item() == pytest.approx(action_loss(logits, labels).item())


def test_every_rank_has_its_share_of_the_held_out_rows(tiny_run: Run):
    examples = Examples.load(tiny_run, "SAD", CPU)
    rows, times = zip(*(examples.holdout(rank, 3) for rank in range(3)), strict=True)
    assert sorted(torch.cat(rows).tolist()) == list(range(536, 600))
    whole_rows, whole_times = examples.holdout(0, 1)
    assert dict(zip(torch.cat(rows).tolist(), torch.cat(times).tolist(), strict=True)) == dict(
        zip(whole_rows.tolist(), whole_times.tolist(), strict=True)
    )


def test_query_times_are_uniform_and_depend_on_seed_and_step(tiny_run: Run):
    examples = Examples.load(tiny_run, "AD", CPU)
    drawn = examples.times(0, 0, 90_000)
    assert torch.bincount(drawn, minlength=9).float().std() < 300
    assert torch.equal(drawn, examples.times(0, 0, 90_000))
    assert not torch.equal(drawn, examples.times(0, 1, 90_000))
    assert not torch.equal(drawn, examples.times(1, 0, 90_000))


def test_every_epoch_uses_every_example_once_in_an_order_of_its_own(tiny_run: Run):
    examples = Examples.load(tiny_run, "DPT", CPU)
    first, second = examples.order(0, 0), examples.order(0, 1)
    assert sorted(first.tolist()) == list(range(536))
    assert not torch.equal(first, second)
    assert torch.equal(first, examples.order(0, 0))
    assert not torch.equal(first, examples.order(1, 0))
