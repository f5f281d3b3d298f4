"""Settings that lower a training's memory and change nothing else."""

from pathlib import Path

import pytest
import torch
from torch import Tensor

from sad_hpc.errors import ConfigError
from sad_hpc.experiment.load import load_experiment
from sad_hpc.experiment.sections import ModelConfig, PretrainConfig
from sad_hpc.model.context import Inputs
from sad_hpc.model.transformer import Transformer
from sad_hpc.pretrain.examples import Examples
from sad_hpc.pretrain.learner import Learner
from sad_hpc.pretrain.questions import Batch
from sad_hpc.pretrain.stage import pretrain
from sad_hpc.pretrain.training_columns import TrainingColumns
from sad_hpc.storage.run import Run
from tests.conftest import TINY, clockless_metrics, forget_rendezvous, with_data_of

CPU = torch.device("cpu")


def batch_of(run: Run, method: str = "SAD") -> Batch:
    examples = Examples.load(TrainingColumns(run, method), CPU)
    return examples.batch(torch.arange(16), examples.draws(0, 0, 16))


def learner_of(run: Run) -> Learner:
    torch.manual_seed(0)
    inputs = Inputs.of_family(run.experiment.family)
    return Learner(Transformer(ModelConfig(layers=3, dropout=0.1), inputs))


def loss_and_bytes(learner: Learner, batch: Batch) -> tuple[Tensor, int]:
    """Return the loss after a backward pass, and the bytes that autograd kept for it."""
    kept: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    learner.begin_step(0, 0, 0)
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        loss = learner(batch)
    loss.backward()
    return loss.detach(), sum(kept.values())


@pytest.mark.parametrize("method", ["SAD", "DIT"])
def test_recomputed_activations_give_the_same_gradient(tiny_run: Run, method: str):
    batch, plain, checkpointed = batch_of(tiny_run, method), *map(learner_of, [tiny_run] * 2)
    checkpointed.checkpoint_activations()
    (loss, whole), (again, less) = (loss_and_bytes(one, batch) for one in (plain, checkpointed))
    assert torch.equal(loss, again)
    assert plain.flat.grad is not None and checkpointed.flat.grad is not None
    assert torch.equal(plain.flat.grad, checkpointed.flat.grad)
    assert less < whole / 2


@pytest.mark.parametrize("method", ["SAD", "DIT"])
def test_the_parts_of_a_batch_are_the_batch(tiny_run: Run, method: str):
    batch = batch_of(tiny_run, method)
    parts = batch.split(4)
    assert [len(part.labels) for part in parts] == [4] * 4
    assert torch.equal(torch.cat([part.labels for part in parts]), batch.labels)
    learner = learner_of(tiny_run).eval()
    losses = torch.stack([learner(part) for part in parts])
    assert losses.mean().item() == pytest.approx(learner(batch).item(), rel=1e-5)
    own = batch.queries.states is batch.context.states
    assert all((part.queries.states is part.context.states) == own for part in parts)


def test_parts_of_a_batch_drop_units_of_their_own(tiny_run: Run):
    learner, batch = learner_of(tiny_run), batch_of(tiny_run)
    losses = []
    for part in (0, 1, 0):
        learner.begin_step(0, 0, 0, part)
        losses.append(learner(batch).item())
    assert losses[0] == losses[2] != losses[1]


def trained(run: Run, folder: Path, *overrides: str) -> list[dict[str, float]]:
    settings = ["pretrain.batch_size=16", "model.dropout=0.0", *overrides]
    own = with_data_of(run, Run(load_experiment(TINY, settings), folder))
    pretrain(own, "SAD", 0)
    forget_rendezvous()
    return clockless_metrics(own.checkpoint("SAD", 0).path)


@pytest.mark.parametrize("stage", [0, pytest.param(1, marks=pytest.mark.slow), 2])
def test_accumulated_gradients_train_the_same_model(tiny_run: Run, tmp_path: Path, stage: int):
    zero = [f"pretrain.zero_stage={stage}", "pretrain.precision=fp32"]
    whole = trained(tiny_run, tmp_path / "whole", *zero)
    parts = trained(tiny_run, tmp_path / "parts", "pretrain.accumulate=4", *zero)
    for mine, theirs in zip(parts, whole, strict=True):
        assert mine == pytest.approx(theirs, rel=1e-4)


@pytest.mark.slow
def test_both_settings_together_train_the_same_model(tiny_run: Run, tmp_path: Path):
    whole = trained(tiny_run, tmp_path / "whole")
    both = ["pretrain.accumulate=2", "pretrain.checkpoint_activations=true"]
    less = trained(tiny_run, tmp_path / "less", *both, "pretrain.kernel=torch")
    for mine, theirs in zip(less, whole, strict=True):
        assert mine == pytest.approx(theirs, rel=1e-3)


def test_parts_of_different_sizes_are_refused():
    config = PretrainConfig(epochs=1, batch_size=12, accumulate=4)
    config.check_ranks(3)
    with pytest.raises(ConfigError, match=r"2 ranks .* with 4 parts each \(pretrain.accumulate\)"):
        config.check_ranks(2)
