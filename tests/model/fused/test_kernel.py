"""The compiled training step: its mathematics, its dropout, and the conditions of its use."""

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sad_hpc.experiment.sections import ModelConfig
from sad_hpc.model.context import Inputs
from sad_hpc.model.fused.kernel import KEPT_MEMORIES, obstacle
from sad_hpc.model.transformer import Transformer
from tests.model.fused.reference import Case, dropout_masks

KEYS = np.array([12345, 67890])

SIZES = st.fixed_dictionaries(
    {
        "seed": st.integers(0, 1000),
        "transitions": st.integers(0, 150),
        "queries": st.integers(1, 70),
        "actions": st.integers(2, 64),
        "stateless": st.booleans(),
        "layers": st.integers(1, 4),
        "heads": st.integers(1, 4),
        "embedding": st.sampled_from([16, 32, 48, 64, 96]),
        "head_dim": st.sampled_from([8, 16, 24, 32, 40]),
        "dropout": st.sampled_from([0.0, 0.1, 0.5]),
    }
)


# Tokens that are wider than any layer.
WIDE_TOKENS = {
    **{"seed": 0, "transitions": 5, "queries": 3, "actions": 64, "stateless": False, "layers": 1},
    **{"heads": 1, "embedding": 16, "head_dim": 8, "dropout": 0.0},
}


@settings(max_examples=25, deadline=None)
@given(SIZES)
@example(WIDE_TOKENS)
def test_losses_and_gradients_are_those_of_torch_in_float64(sizes: dict):
    case = Case.of(**sizes)
    keys = KEYS if sizes["dropout"] else None
    loss, gradients = case.by_kernel(keys)
    expected, exact = case.by_torch(keys)
    assert loss == pytest.approx(expected, rel=1e-5)
    pairs = [pair for pair in zip(gradients, exact, strict=True) if pair[1] is not None]
    # A sum over many rows that nearly cancel has the rounding of its largest terms.
    rounding = 1e-6 * max(theirs.abs().max().item() for _, theirs in pairs if theirs.numel())
    for mine, theirs in pairs:
        if theirs.numel():
            error = (mine - theirs).abs().max().item()
            assert error < 1e-5 * theirs.abs().max().item() + rounding


@settings(max_examples=15, deadline=None)
@given(SIZES)
def test_answers_are_those_of_torch(sizes: dict):
    case = Case.of(**sizes)
    case.model.eval()
    inputs = (case.tokens, case.queries, case.prefixes)
    with torch.no_grad():
        expected = case.model.answer(*inputs)
    assert torch.allclose(case.kernel.answer(case.flat, *inputs), expected, rtol=1e-4, atol=1e-4)


@settings(max_examples=15, deadline=None)
@given(SIZES)
@example(WIDE_TOKENS)
def test_held_contexts_have_the_same_bits(sizes: dict):
    case = Case.of(**sizes | {"stateless": False})
    whole = torch.full_like(case.prefixes, case.tokens.shape[1])
    rows = np.array([1, 0, 1])
    asked = torch.randn(3, *case.queries.shape[1:])
    expected = case.kernel.answer(case.flat, case.tokens[rows], asked, whole[rows])
    kernel = case.kernel
    held = kernel.hold(case.flat, case.tokens)
    for _ in range(2):  # a call does not change them
        found = kernel.answer_held(case.flat, held, case.tokens.shape[1], rows, asked)
        assert torch.equal(found, expected)


def test_it_keeps_the_memory_of_a_few_lengths_alone():
    """A context that grows by a transition at each step would fill the machine's memory."""
    case = Case.of(transitions=20, queries=1)
    kernel = case.kernel
    whole = kernel.answer(case.flat, case.tokens, case.queries, case.prefixes * 0 + 20)
    for length in [*range(20), 18, 20]:
        tokens, prefixes = case.tokens[:, :length], case.prefixes * 0 + length
        answer = kernel.answer(case.flat, tokens, case.queries, prefixes)
    assert torch.equal(answer, whole)
    kept = [length for length, _ in kernel._memories]
    assert kept == [13, 14, 15, 16, 17, 19, 18, 20] and len(kept) == KEPT_MEMORIES


def test_no_query_sees_another_nor_what_comes_after_its_prefix():
    case = Case.of(transitions=40, queries=37)
    inputs = (case.tokens, case.queries, case.prefixes)
    before = case.kernel.answer(case.flat, *inputs)
    case.queries[:, 7] += 1
    after = case.kernel.answer(case.flat, *inputs)
    others = torch.arange(37) != 7
    assert torch.equal(before[:, others], after[:, others])
    assert not torch.equal(before[:, 7], after[:, 7])
    case.tokens[:, 20:] += 1
    blind = case.prefixes <= 20
    assert torch.equal(case.kernel.answer(case.flat, *inputs)[blind], after[blind])
    assert not torch.equal(case.kernel.answer(case.flat, *inputs)[~blind], after[~blind])


def test_dropout_drops_its_share_everywhere_and_independently():
    config = ModelConfig(dropout=0.1)
    masks = dropout_masks(KEYS, config, batch=40, length=60, layers=3) > 0
    assert (~masks).mean() == pytest.approx(0.1, abs=0.001)
    for axis in range(4):  # no site, sequence, place or feature is dropped more than others
        others = tuple(other for other in range(4) if other != axis)
        deviation = (~masks).mean(axis=others) - 0.1
        assert np.abs(deviation).max() < 5 * 0.3 / np.sqrt(masks.size / masks.shape[axis])
    flat = masks.reshape(7, -1).astype(float)
    assert np.abs(np.corrcoef(flat) - np.eye(7)).max() < 0.02
    again = dropout_masks(KEYS + np.array([1, 0]), config, batch=40, length=60, layers=3) > 0
    assert np.abs(np.corrcoef(flat[0], again[0].reshape(-1))[0, 1]) < 0.02


def test_a_loss_that_is_scaled_has_scaled_gradients():
    case = Case.of()
    _, plain = case.by_kernel()
    flat = case.flat.requires_grad_()
    inputs = (case.tokens, case.queries, case.prefixes, case.labels, case.weights, None)
    (3 * case.kernel.loss(flat, *inputs)).backward()
    assert flat.grad is not None
    assert torch.allclose(flat.grad, 3 * torch.cat(plain[:-2]))


def test_what_would_leave_its_memory_is_refused():
    case = Case.of(transitions=4, queries=3)
    case.labels[0, 0] = 5
    with pytest.raises(ValueError, match="not an action"):
        case.by_kernel()
    case.prefixes[1, 2] = 5
    with pytest.raises(ValueError, match="prefix"):
        case.kernel.answer(case.flat, case.tokens, case.queries, case.prefixes)
    with pytest.raises(ValueError, match="transitions"):
        longer = case.tokens.repeat(1, 2, 1)
        case.kernel.answer(case.flat, longer, case.queries, case.prefixes * 0)


@pytest.mark.parametrize(
    "changes, device, dtype, reason",
    [
        ({}, "cpu", torch.float32, None),
        ({}, "meta", torch.float32, "device is meta"),
        ({}, "cpu", torch.bfloat16, "precision is bfloat16"),
        ({"embedding": 40}, "cpu", torch.float32, "multiple of 16"),
        ({"head_dim": 12}, "cpu", torch.float32, "not a multiple of 8"),
        ({"layers": 9}, "cpu", torch.float32, "more than 8 layers"),
        ({"attention_dropout": 0.1}, "cpu", torch.float32, "attention dropout"),
    ],
)
def test_it_says_why_torch_takes_the_steps(
    changes: dict, device: str, dtype: torch.dtype, reason: str | None
):
    model = Transformer(ModelConfig(**changes), Inputs(5, 4, (3.0,), (0.5,)))
    answer = obstacle(model, torch.device(device), dtype)
    assert answer is None if reason is None else reason in str(answer)
