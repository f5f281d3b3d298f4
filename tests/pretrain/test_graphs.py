"""Steps by CUDA graphs: losses, gradients and dropout equal those of torch."""

import pytest
import torch

from sad_hpc.pretrain.learner import Learner, graphs_obstacle
from sad_hpc.pretrain.questions import Batch
from tests.pretrain.made_up import make_batch, make_examples
from tests.pretrain.test_learner import make_model

on_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")

STEPS = 6
"""The first warms up, the second is captured, and later ones replay it."""


def make_learner(graphs: bool, **changes: float) -> Learner:
    learner = Learner(make_model(**changes)).cuda()
    if graphs:
        assert learner.use_graphs() is None
    return learner


def batches(method: str, queries: int) -> list[Batch]:
    examples = make_examples(method, queries, device="cuda")
    return [make_batch(examples, 64, step=step) for step in range(STEPS)]


def step(learner: Learner, batch: Batch) -> float:
    """The loss; the gradient is in memory of the graph, which the next step takes."""
    learner.flat.grad = None
    loss = learner(batch)
    loss.backward()
    return loss.item()


@on_gpu
@pytest.mark.parametrize("method, queries", [("SAD", 1), ("SAD", 3), ("AD", 1), ("DIT", 1)])
def test_losses_and_gradients_are_those_of_torch(method: str, queries: int):
    plain, fast = make_learner(False), make_learner(True)
    for batch in batches(method, queries):
        losses = [step(learner, batch) for learner in (plain, fast)]
        assert losses[1] == pytest.approx(losses[0], rel=1e-4)
        assert plain.flat.grad is not None and fast.flat.grad is not None
        error = (fast.flat.grad - plain.flat.grad).norm() / plain.flat.grad.norm()
        assert error < 1e-3
        with torch.no_grad():
            for learner in (plain, fast):
                learner.flat.sub_(0.1 * plain.flat.grad)


@on_gpu
def test_dropout_is_a_function_of_seed_step_and_rank():
    learner, batch = make_learner(True, dropout=0.5), batches("SAD", 3)[0]

    def loss(*numbers: int) -> float:
        learner.begin_step(*numbers)
        return step(learner, batch)

    for number in range(STEPS):
        loss(1, number, 3)
    once = loss(1, 2, 3)
    assert len({once, loss(2, 2, 3), loss(1, 3, 3), loss(1, 2, 4)}) == 4
    assert loss(1, 2, 3) == once


@on_gpu
def test_dropout_drops_as_much_as_torch_does():
    batch, means = batches("SAD", 3)[0], []
    for graphs in (False, True):
        learner = make_learner(graphs, dropout=0.5)
        losses = []
        for number in range(400):
            learner.begin_step(0, number, 0)
            losses.append(step(learner, batch))
        means.append(torch.tensor(losses))
    error = sum(each.var() / len(each) for each in means) ** 0.5
    assert abs(means[0].mean() - means[1].mean()) < 4 * error
    assert 0.5 < means[0].std() / means[1].std() < 2


@pytest.mark.slow
@pytest.mark.parametrize("stateless", [False, True])
@pytest.mark.parametrize("method, queries", [("SAD", 1), ("SAD", 3), ("AD", 1), ("DIT", 1)])
def test_a_step_is_one_graph(method: str, queries: int, stateless: bool):
    examples = make_examples(method, queries, stateless)
    learner = Learner(make_model(stateless))
    compiled = torch.compile(
        learner._torch_loss, backend="aot_eager", fullgraph=True, dynamic=False
    )
    for number in range(3):
        batch = make_batch(examples, 16, step=number)
        assert compiled(batch).item() == pytest.approx(learner(batch).item(), rel=1e-5)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_what_is_in_the_way_of_graphs_is_named():
    assert graphs_obstacle(torch.device("cpu")) == "the device is cpu"
    assert "torch.compile fails: " in (graphs_obstacle(torch.device("cuda")) or "")
