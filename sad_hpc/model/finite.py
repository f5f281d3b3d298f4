"""Checks that losses, gradient norms and weights are finite."""

import math
from collections.abc import Iterable

import torch
from torch import Tensor


@torch.no_grad()
def all_finite(tensors: Iterable[Tensor]) -> bool:
    """Return whether all entries of all tensors are finite, with one device synchronization."""
    # A sum of finite entries can overflow, but 0 x entry is 0 or NaN.
    sums = [(0 * tensor.detach().float()).sum() for tensor in tensors]
    return not sums or bool(torch.stack(sums).isfinite().all())


class RecentSteps:
    """Loss and gradient norm of one rank's steps since the last call of `are_finite`.

    Only `are_finite` synchronizes with the device.
    """

    def __init__(self, device: torch.device) -> None:
        self._sums = torch.zeros(2, dtype=torch.float64, device=device)
        self._count = 0
        self.last_loss = math.nan
        """Mean loss over the last steps with finite numbers; NaN before the first ones."""

    def add(self, loss: Tensor, gradient_norm: Tensor) -> None:
        """Add the loss and the gradient norm of a step."""
        self._sums += torch.stack([loss, gradient_norm])
        self._count += 1

    def are_finite(self) -> bool:
        """Return whether all steps since the last call had finite numbers."""
        loss, norm = self._sums.tolist()
        finite = math.isfinite(loss) and math.isfinite(norm)
        if finite and self._count:
            self.last_loss = loss / self._count
        self._sums.zero_()
        self._count = 0
        return finite
