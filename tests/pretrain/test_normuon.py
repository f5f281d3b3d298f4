"""NorMuon against a reference that treats one matrix at a time."""

from pathlib import Path

import pytest
import torch
from torch import Tensor

from sad_hpc.errors import ConfigError
from sad_hpc.experiment.load import load_experiment
from sad_hpc.model.transformer import Transformer
from sad_hpc.pretrain.normuon import NorMuon, matrix_stacks, orthogonalized
from tests.conftest import TINY
from tests.pretrain.test_learner import make_model


def weights_of(model: Transformer) -> dict[str, Tensor]:
    return {name: weight.detach() for name, weight in model.named_parameters()}


def matrices(named: dict[str, Tensor]) -> dict[str, Tensor]:
    """Tall matrices of the blocks by name, as views of the weights."""
    found = {}
    for name, weight in named.items():
        if name.startswith("blocks.") and weight.ndim == 2:
            parts = weight.split(len(weight) // 3) if "query_key_value" in name else (weight,)
            for number, part in enumerate(parts):
                tall = part if part.shape[0] >= part.shape[1] else part.T
                found[f"{name} {number}"] = tall
    return found


class Reference:
    """NorMuon of one matrix after the other in float64, by the text of its paper."""

    def __init__(self) -> None:
        self.momentum: dict[str, Tensor] = {}
        self.squares: dict[str, Tensor] = {}

    def update(self, name: str, gradient: Tensor, step: int) -> Tensor:
        zeros = torch.zeros_like(gradient)
        momentum = 0.95 * self.momentum.get(name, zeros) + 0.05 * gradient
        x = 0.05 * gradient + 0.95 * momentum
        x = x / x.norm()
        for _ in range(5):
            gram = x.T @ x
            x = 3.4445 * x - 4.7750 * x @ gram + 2.0315 * x @ gram @ gram
        squares = 0.95 * self.squares.get(name, zeros[:, :1]) + 0.05 * (x**2).mean(1, keepdim=True)
        even = x / (squares / (1 - 0.95**step)).sqrt()
        self.momentum[name], self.squares[name] = momentum, squares
        rows, columns = x.shape
        return (rows / columns) ** 0.5 * even * x.norm() / even.norm()


def test_matrices_follow_the_reference_and_other_weights_adamw():
    model = make_model()
    named, shapes = weights_of(model), {n: w.shape for n, w in model.named_parameters()}
    flat = torch.nn.Parameter(torch.cat([w.flatten() for w in named.values()]))
    adam = torch.nn.Parameter(flat.detach().clone())
    optimizer = NorMuon(flat, shapes, 3e-3, 0.02, (0.9, 0.95), 1e-2)
    plain = torch.optim.AdamW([adam], lr=3e-3, betas=(0.9, 0.95), weight_decay=1e-2, fused=True)
    expected = {name: m.double() for name, m in matrices(named).items()}
    reference, generator = Reference(), torch.Generator().manual_seed(0)

    def views(vector: Tensor) -> dict[str, Tensor]:
        parts = vector.detach().split([shape.numel() for shape in shapes.values()])
        return {n: p.view(s) for (n, s), p in zip(shapes.items(), parts, strict=True)}

    for step in range(1, 5):
        rate = 1.0 if step < 3 else 0.5  # the schedule changes both rates
        flat.grad = torch.randn(flat.shape, generator=generator)
        adam.grad = flat.grad.clone()
        for each in (optimizer, plain):
            each.param_groups[0]["lr"] = 3e-3 * rate
            each.step()
        for name, gradient in matrices(views(flat.grad)).items():
            expected[name] -= 0.02 * rate * reference.update(name, gradient.double(), step)
    for name, matrix in matrices(views(flat)).items():
        assert torch.allclose(matrix.double(), expected[name], rtol=0, atol=1e-5), name
    others = [n for n in shapes if not (n.startswith("blocks.") and len(shapes[n]) == 2)]
    assert others
    for name in others:
        assert torch.equal(views(flat)[name], views(adam)[name]), name


def test_stacks_hold_every_matrix_of_the_blocks_once():
    shapes = {name: weight.shape for name, weight in make_model().named_parameters()}
    places = torch.cat([stack.flatten() for stack in matrix_stacks(shapes)])
    assert len(places.unique()) == len(places)
    expected = sum(
        shape.numel() for n, shape in shapes.items() if n.startswith("blocks.") and len(shape) == 2
    )
    assert len(places) == expected
    assert all(stack.shape[1] >= stack.shape[2] for stack in matrix_stacks(shapes))


def test_singular_values_move_to_about_1():
    generator = torch.Generator().manual_seed(1)
    scales = torch.tensor([1e-6, 1.0, 1e6]).view(3, 1, 1)
    made = orthogonalized(scales * torch.randn(3, 48, 32, generator=generator))
    values = torch.linalg.svdvals(made)
    assert values.min() > 0.6
    assert values.max() < 1.3
    assert torch.equal(orthogonalized(torch.zeros(1, 4, 2)), torch.zeros(1, 4, 2))


def test_without_a_gradient_matrices_stay():
    shapes = {name: weight.shape for name, weight in make_model().named_parameters()}
    flat = torch.nn.Parameter(torch.ones(sum(shape.numel() for shape in shapes.values())))
    optimizer = NorMuon(flat, shapes, 1e-3, 0.02, (0.9, 0.95), 0.0)
    flat.grad = torch.zeros_like(flat)
    optimizer.step()
    assert torch.equal(flat, torch.ones_like(flat))


def test_a_resumed_optimizer_equals_an_undisturbed_one(tmp_path: Path):
    shapes = {name: weight.shape for name, weight in make_model().named_parameters()}
    size = sum(shape.numel() for shape in shapes.values())
    gradients = torch.randn(6, size, generator=torch.Generator().manual_seed(2))

    def made(start: Tensor) -> tuple[Tensor, NorMuon]:
        flat = torch.nn.Parameter(start.clone())
        return flat, NorMuon(flat, shapes, 1e-3, 0.02, (0.9, 0.95), 0.0)

    def steps(flat: Tensor, optimizer: NorMuon, some: Tensor) -> None:
        for gradient in some:
            flat.grad = gradient.clone()
            optimizer.step()

    flat, optimizer = made(torch.ones(size))
    steps(flat, optimizer, gradients[:3])
    torch.save(optimizer.state_dict(), tmp_path / "state")
    resumed, again = made(flat.detach())
    again.load_state_dict(torch.load(tmp_path / "state", weights_only=True))
    steps(flat, optimizer, gradients[3:])
    steps(resumed, again, gradients[3:])
    assert torch.equal(flat, resumed)


@pytest.mark.parametrize("cut", ["pretrain.zero_stage=1", "pretrain.precision=bf16"])
def test_settings_that_cut_matrices_are_refused(cut: str):
    with pytest.raises(ConfigError, match="needs whole matrices in fp32"):
        load_experiment(TINY, ["pretrain.optimizer=normuon", cut])
