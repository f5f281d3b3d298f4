"""The flat parameter: the same model and gradients, and weights by name."""

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from sad_hpc.experiment.sections import ModelConfig
from sad_hpc.model.context import Inputs
from sad_hpc.model.transformer import Transformer
from sad_hpc.model.weights import load_weights, save_weights
from sad_hpc.pretrain.learner import Learner, action_loss
from tests.pretrain.made_up import A, T, make_batch, make_examples

INPUTS = {
    False: Inputs(A, T, (3.0, 3.0), (0.5, 0.5)),
    True: Inputs(A, T, (0.0,), (1.0,), stateless=True),
}


def make_model(stateless: bool = False, **changes: float) -> Transformer:
    torch.manual_seed(0)
    return Transformer(ModelConfig(**({"dropout": 0.0} | changes)), INPUTS[stateless])


def test_the_loss_is_the_weighted_mean_over_all_questions():
    generator = torch.Generator().manual_seed(0)
    logits, weights = (torch.randn(*s, generator=generator) for s in ((3, 4, 5), (3, 4)))
    labels = torch.randint(5, (3, 4), generator=generator)
    losses = [
        -weights[b, k] * F.log_softmax(logits[b, k], 0)[labels[b, k]]
        for b in range(3)
        for k in range(4)
    ]
    expected = torch.stack(losses).mean().item()
    assert action_loss(logits, labels, weights).item() == pytest.approx(expected, rel=1e-5)
    ones = action_loss(logits, labels, torch.ones(3, 4))
    assert action_loss(logits, labels).item() == pytest.approx(ones.item(), rel=1e-6)


@pytest.mark.parametrize("method, queries", [("SAD", 1), ("SAD", 3), ("AD", 1), ("DIT", 1)])
@pytest.mark.parametrize("stateless", [False, True])
def test_gradients_are_those_of_the_plain_model(method: str, queries: int, stateless: bool):
    batch = make_batch(make_examples(method, queries, stateless), 4)
    plain, learner = make_model(stateless), Learner(make_model(stateless))
    assert [name for name, _ in learner.named_parameters()] == ["flat"]
    logits = plain(batch.context, batch.queries)
    assert torch.equal(learner.logits(batch), logits)
    loss = action_loss(logits, batch.labels, batch.weights)
    loss.backward()
    mine = learner(batch)
    mine.backward()
    assert mine.item() == loss.item()
    expected = torch.cat([weight.grad.flatten() for weight in plain.parameters()])
    assert expected.norm() > 1e-3
    assert learner.flat.grad is not None
    assert torch.allclose(learner.flat.grad, expected, rtol=1e-5, atol=1e-7)


def test_weights_can_be_read_by_name(tmp_path: Path):
    learner, path = Learner(make_model()), tmp_path / "weights.pt"
    with torch.no_grad():
        learner.flat.add_(torch.randn(learner.flat.shape))
    checksum = save_weights(path, learner.named_weights(), "0" * 12)
    assert path.stat().st_size < 4 * learner.flat.numel() + 50_000, "each weight is there once"
    restored = make_model()
    assert list(learner.named_weights()) == list(restored.state_dict())
    load_weights(path, restored, "0" * 12, checksum)
    batch = make_batch(make_examples("SAD", 3), 4)
    assert torch.equal(restored(batch.context, batch.queries), learner.logits(batch))


def test_dropout_is_a_function_of_seed_step_and_rank():
    learner, batch = Learner(make_model(dropout=0.5)), make_batch(make_examples("SAD", 3), 4)

    def loss(*numbers: int) -> float:
        learner.begin_step(*numbers)
        return learner(batch).item()

    once = loss(1, 2, 3)
    assert loss(1, 2, 3) == once
    assert len({once, loss(2, 2, 3), loss(1, 3, 3), loss(1, 2, 4)}) == 4


def test_half_precision_reaches_the_whole_model():
    learner, batch = Learner(make_model()), make_batch(make_examples("SAD", 3), 4)
    full = learner(batch).item()
    learner.bfloat16()
    assert learner.logits(batch).dtype == torch.bfloat16
    assert learner(batch).item() == pytest.approx(full, abs=0.05)
