"""The rule that a model's numbers are finite: losses, gradient norms and weights."""

import math
from collections.abc import Iterable

import torch
from torch import Tensor


@torch.no_grad()
def all_finite(tensors: Iterable[Tensor]) -> bool:
    """Whether no entry of any tensor is NaN or infinite; one synchronisation for all of them."""
    # A sum may overflow where no entry does; 0 x entry is 0 or NaN.
    sums = [(0 * tensor.detach().float()).sum() for tensor in tensors]
    return not sums or bool(torch.stack(sums).isfinite().all())


class RecentSteps:
    """Loss and gradient norm of one rank's steps since it was last asked about them.

    Nothing is synchronised with the device but by `are_finite`.
    """

    def __init__(self, device: torch.device) -> None:
        self._sums = torch.zeros(2, dtype=torch.float64, device=device)
        self._count = 0
        self.last_loss = math.nan
        """The mean over the last steps whose numbers were finite; NaN before there are any."""

    def add(self, loss: Tensor, gradient_norm: Tensor) -> None:
        """Takes note of a step."""
        self._sums += torch.stack([loss, gradient_norm])
        self._count += 1

    def are_finite(self) -> bool:
        """Whether all of them were; from now on the next ones are counted."""
        loss, norm = self._sums.tolist()
        finite = math.isfinite(loss) and math.isfinite(norm)
        if finite and self._count:
            self.last_loss = loss / self._count
        self._sums.zero_()
        self._count = 0
        return finite
