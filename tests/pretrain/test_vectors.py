"""Actions of several components: each is a query with its own label, after those before it."""

import dataclasses
import math

import numpy as np
import pytest
import torch

from sad_hpc.experiment.methods import METHODS
from sad_hpc.experiment.sections import ModelConfig
from sad_hpc.model.context import Inputs
from sad_hpc.model.transformer import Transformer
from sad_hpc.pretrain.examples import Examples
from sad_hpc.pretrain.learner import Learner

N, T, BINS, SIZE = 64, 6, 7, 3
INPUTS = Inputs(BINS, T, (0.0,), (1.0,), components=SIZE)


def examples(method: str, queries: int) -> Examples:
    """Labels that the query state s in [-1, 1] decides: (s, -s, 0); contexts that are like them."""
    generator = torch.Generator().manual_seed(0)

    def actions_in(states: torch.Tensor) -> torch.Tensor:
        return torch.cat([states, -states, 0 * states], dim=2)

    states = 2 * torch.rand(N, T, 1, generator=generator) - 1
    columns = {
        "states": states,
        "actions": actions_in(states),
        "rewards": torch.rand(N, T, generator=generator),
        "next_states": states,
    }
    if METHODS[method].labels is not None:
        asked = 2 * torch.rand(N, queries, 1, generator=generator) - 1
        columns |= {"query_states": asked, "labels": actions_in(asked)}
    if METHODS[method].by_return:
        columns["weights"] = 1 + torch.rand(N, T, generator=generator)
    return Examples(METHODS[method], columns, 8, stateless=False, bins=BINS)


@pytest.mark.parametrize(
    "method, queries", [("SAD", 1), ("SAD", 4), ("AD", 1), ("DIT", 1)]
)  # fmt: skip
def test_every_component_learns_its_own_label(method: str, queries: int) -> None:
    torch.manual_seed(0)
    made = examples(method, queries)
    learner = Learner(Transformer(ModelConfig(dropout=0.0, layers=1), INPUTS))
    assert learner.use_kernel() is None
    optimizer = torch.optim.Adam([learner.flat], lr=0.02)
    for step in range(120):
        rows = made.order(0, step)
        optimizer.zero_grad()
        loss = learner(made.batch(rows, made.draws(0, step, len(rows))))
        loss.backward()
        optimizer.step()
    batch = made.held_out(made.holdout(0, 1))
    right = learner.logits(batch).argmax(dim=-1) == batch.labels
    by_component = right.double().reshape(len(right), -1, SIZE).mean(dim=(0, 1))
    assert (by_component > 0.6).all(), by_component
    judged = batch.labels[:, batch.judged]
    assert judged.shape[1] % SIZE == 0 and judged.shape[1] > 0


def test_every_component_is_a_query_that_passes_through_the_model() -> None:
    for queries, asked in ((1, T + 1), (4, 4)):  # after every prefix, or each after one
        made = examples("SAD", queries)
        batch = made.batch(made.order(0, 0)[:8], made.draws(0, 0, 8))
        assert batch.labels.shape[1] == asked * SIZE
        assert made.tokens == T + asked * SIZE


def test_the_kernel_answers_as_torch_does() -> None:
    made = examples("SAD", 4)
    rows = made.order(0, 0)[:8]
    batch = made.batch(rows, made.draws(0, 0, 8))
    torch.manual_seed(1)
    learner = Learner(Transformer(ModelConfig(dropout=0.0), INPUTS)).eval()
    expected = learner.logits(batch)
    assert learner.use_kernel() is None
    assert expected.shape == (8, 4 * SIZE, BINS)
    torch.testing.assert_close(learner.logits(batch), expected, rtol=1e-4, atol=1e-4)


def test_a_question_holds_the_components_before_its_own_and_no_other() -> None:
    batch = examples("SAD", 4).held_out(torch.arange(56, 64))
    torch.manual_seed(0)
    model = Transformer(ModelConfig(dropout=0.0, layers=1), INPUTS).eval()
    for changed in range(SIZE):
        asked = batch.queries.actions.clone()
        asked[..., changed] = -asked[..., changed] + 0.5
        with torch.no_grad():
            before = model(batch.context, batch.queries)
            after = model(batch.context, dataclasses.replace(batch.queries, actions=asked))
        moved = (before != after).any(dim=2).reshape(-1, SIZE).any(dim=0)
        assert moved.tolist() == [component > changed for component in range(SIZE)]


def test_components_learn_to_depend_on_each_other() -> None:
    """Labels of which the first bin decides the others have log 7 nats; marginals have 3 log 7."""
    generator = torch.Generator().manual_seed(0)
    made, rows = examples("SAD", 4), torch.arange(N)
    drawn = torch.randint(BINS, (100, N, 4, 1), generator=generator)
    torch.manual_seed(0)
    learner = Learner(Transformer(ModelConfig(dropout=0.0, layers=2), INPUTS))
    assert learner.use_kernel() is None
    optimizer, losses = torch.optim.Adam([learner.flat], lr=0.01), []
    for step, first in enumerate(drawn):
        numbers = torch.cat([first, (3 * first + 1) % BINS, first], dim=2)
        made._questions.columns["labels"] = (2 * numbers + 1) / BINS - 1
        optimizer.zero_grad()
        loss = learner(made.batch(rows, made.draws(0, step, N)))
        loss.backward()
        optimizer.step()
        losses.append(SIZE * loss.item())
    assert math.log(BINS) - 0.02 < np.mean(losses[-20:]) < 1.1 * math.log(BINS)
