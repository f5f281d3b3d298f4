"""NorMuon on a flat parameter: orthogonal updates of the blocks' matrices, AdamW for the rest.

Muon (Jordan et al. 2024) replaces the momentum of a matrix by a nearby matrix with orthogonal
columns.  NorMuon (Li et al. 2025, arXiv:2510.05491) then divides each row by a running estimate of
its size.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

MOMENTUM = 0.95
ROW_DECAY = 0.95
"""Decay of the running mean square of a row."""
COEFFICIENTS = 3.4445, -4.7750, 2.0315
"""Coefficients of the quintic Newton-Schulz iteration, by Jordan et al."""
ITERATIONS = 5


def matrix_stacks(shapes: Mapping[str, torch.Size]) -> list[Tensor]:
    """Return the places of the blocks' matrices in the flat parameter, stacked by shape.

    Queries, keys and values are separate matrices.  A matrix with more columns than rows is
    transposed.

    Args:
        shapes: shape of each weight, in the order of the flat parameter.

    Returns:
        one array (n, r, c) of int64, with r >= c, for each shape.
    """
    stacks, start = defaultdict(list), 0
    for name, shape in shapes.items():
        places = torch.arange(start, start + shape.numel()).view(shape)
        start += shape.numel()
        if not name.startswith("blocks.") or len(shape) != 2:
            continue
        for matrix in places.chunk(3 if "query_key_value" in name else 1):
            tall = matrix if matrix.shape[0] >= matrix.shape[1] else matrix.mT
            stacks[tall.shape].append(tall)
    return [torch.stack(stack) for stack in stacks.values()]


def orthogonalized(matrices: Tensor) -> Tensor:
    """Return matrices (n, r, c), r >= c, with all singular values moved to about 1."""
    a, b, c = COEFFICIENTS
    x = matrices / (matrices.flatten(1).norm(dim=1).view(-1, 1, 1) + 1e-7)
    for _ in range(ITERATIONS):
        gram = x.mT @ x
        x = torch.baddbmm(x, x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), beta=a)
    return x


class NorMuon(torch.optim.AdamW):
    """NorMuon for the matrices of the blocks, and AdamW for all other weights.

    Args:
        flat: (P,) fp32, all weights.
        shapes: see `matrix_stacks`.
        lr: learning rate of AdamW.
        matrix_rate: learning rate of matrices; it follows changes of `lr` in proportion.
        betas: decay rates of AdamW's moments.
        weight_decay: of AdamW; matrices do not decay.
    """

    def __init__(
        self,
        flat: Tensor,
        shapes: Mapping[str, torch.Size],
        lr: float,
        matrix_rate: float,
        betas: tuple[float, float],
        weight_decay: float,
    ) -> None:
        super().__init__([flat], lr=lr, betas=betas, weight_decay=weight_decay, fused=True)
        self._stacks = [places.to(flat.device) for places in matrix_stacks(shapes)]
        self._ratio = matrix_rate / lr

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> None:  # type: ignore[override]
        """Update all weights; `closure` is not supported."""
        (group,) = self.param_groups
        (flat,) = group["params"]
        before = [flat[places] for places in self._stacks]
        super().step(closure)
        state, rate = self.state[flat], self._ratio * group["lr"]
        for number, (places, weights) in enumerate(zip(self._stacks, before, strict=True)):
            if f"momentum{number}" not in state:
                state[f"momentum{number}"] = torch.zeros_like(weights)
                state[f"squares{number}"] = torch.zeros_like(weights[:, :, :1])
            momentum, squares = state[f"momentum{number}"], state[f"squares{number}"]
            gradient = flat.grad[places]
            momentum.lerp_(gradient, 1 - MOMENTUM)
            update = orthogonalized(gradient.lerp(momentum, MOMENTUM))  # Nesterov's momentum
            squares.lerp_(update.square().mean(dim=2, keepdim=True), 1 - ROW_DECAY)
            update = with_even_rows(update, squares / (1 - ROW_DECAY ** state["step"]))
            rows, columns = weights.shape[1:]
            flat[places] = weights - rate * (rows / columns) ** 0.5 * update


def with_even_rows(update: Tensor, squares: Tensor) -> Tensor:
    """Divide rows of (n, r, c) by their root mean square (n, r, 1), and keep each matrix's norm."""
    even = update / squares.sqrt().add(1e-8)
    size, new_size = (each.flatten(1).norm(dim=1).view(-1, 1, 1) for each in (update, even))
    return even * (size / new_size.clamp(min=1e-20))
