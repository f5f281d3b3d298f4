"""What DeepSpeed trains: a model whose parameters are one flat tensor, and its loss."""

from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call

from sad_hpc.model.transformer import Transformer
from sad_hpc.pretrain.questions import Batch


class Learner(nn.Module):
    """The transformer of Algorithm 4 with a single parameter.

    DeepSpeed and the optimizer do something for each parameter.  For the 43 small ones of the
    paper's model that takes 2.2 ms of a step on one core, for a flat one 0.9 ms.

    Args:
        model: with the weights to begin with; its parameters are the learner's from now on.
    """

    def __init__(self, model: Transformer) -> None:
        super().__init__()
        self._shapes = {name: weight.shape for name, weight in model.named_parameters()}
        self.flat = nn.Parameter(torch.cat([w.detach().flatten() for w in model.parameters()]))
        """(P,) all weights, one after the other as in `Transformer.named_parameters`."""
        for name in self._shapes:
            module, _, own = name.rpartition(".")
            model.get_submodule(module).register_parameter(own, None)
        # Its buffers go where DeepSpeed puts this module, in the same precision.
        self._shell = model
        self._pass: Callable[[Batch], tuple[Tensor, Tensor]] = self._pass_by_torch
        """The way through the model: a batch's loss, and its logits (B, K, A)."""

    def forward(self, batch: Batch) -> Tensor:
        """The loss of a batch, see `action_loss`."""
        return self._pass(batch)[0]

    def logits(self, batch: Batch) -> Tensor:
        """(B, K, A): the action logits of its questions."""
        return self._pass(batch)[1]

    def begin_step(self, seed: int, step: int, rank: int) -> None:
        """Makes the dropout of this rank's next pass a function of these three numbers."""
        state = np.random.SeedSequence([seed, step, rank]).generate_state(1, np.uint64)[0]
        torch.manual_seed(int(state))

    def named_weights(self) -> dict[str, Tensor]:
        """The weights as views of the flat parameter, under the names of a Transformer's."""
        # One split, whose gradient is one concatenation.
        parts = self.flat.split([shape.numel() for shape in self._shapes.values()])
        return {
            name: part.view(shape)
            for (name, shape), part in zip(self._shapes.items(), parts, strict=True)
        }

    def _pass_by_torch(self, batch: Batch) -> tuple[Tensor, Tensor]:
        weights, inputs = self.named_weights(), (batch.context, batch.queries)
        logits = functional_call(self._shell, weights, inputs)
        return action_loss(logits, batch.labels, batch.weights), logits


def action_loss(logits: Tensor, labels: Tensor, weights: Tensor | None = None) -> Tensor:
    """Mean over all questions of weight x negative log-likelihood of the label, in nats.

    Args:
        logits: (B, K, A).
        labels: (B, K) int64.
        weights: (B, K), or None for ones.
    """
    scores, expected = logits.flatten(0, 1).float(), labels.flatten()
    if weights is None:
        return F.cross_entropy(scores, expected)
    losses = F.cross_entropy(scores, expected, reduction="none")
    return (weights.flatten() * losses).mean()
