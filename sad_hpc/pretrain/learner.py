"""The module that DeepSpeed trains: a model with one flat parameter, and its loss."""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call

from sad_hpc.model.fused.kernel import Kernel, obstacle
from sad_hpc.model.sequence_model import SequenceModel, Through
from sad_hpc.model.transformer import Transformer
from sad_hpc.pretrain.questions import Batch

Loss = Callable[[Tensor, Tensor, Tensor | None], Tensor]
"""A function of logits (B, K, A), labels (B, K) and weights (B, K) or None; see `action_loss`."""


def action_loss(logits: Tensor, labels: Tensor, weights: Tensor | None = None) -> Tensor:
    """Return the mean over questions of weight x negative log-likelihood of the label, in nats.

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


class Learner(nn.Module):
    """The model of Algorithm 4 with a single parameter.

    DeepSpeed and the optimizer have a cost for each parameter.  A flat parameter more than halves
    their time for the paper's small model.

    Args:
        model: model with the initial weights; the learner takes over its parameters.
        loss: function of logits, labels and weights, see `action_loss`.
    """

    def __init__(self, model: SequenceModel, loss: Loss = action_loss) -> None:
        super().__init__()
        self._loss = loss
        self.shapes = {name: weight.shape for name, weight in model.named_parameters()}
        self.flat = nn.Parameter(torch.cat([w.detach().flatten() for w in model.parameters()]))
        """(P,): all weights, in the order of `nn.Module.named_parameters`."""
        for name in self.shapes:
            module, _, own = name.rpartition(".")
            model.get_submodule(module).register_parameter(own, None)
        # A tuple hides the module from DeepSpeed, which visits all submodules in every step.
        self._hidden = (model,)
        self._kernel: Kernel | None = None
        """Fused forward, loss and backward pass; None: torch is used."""
        self._graphs: Callable[[Batch], Tensor] | None = None
        """Torch's forward and loss as CUDA graphs; None: without graphs."""
        self._dropout_keys = np.zeros(2, np.int64)

    @property
    def _shell(self) -> SequenceModel:
        """The model without its parameters."""
        return self._hidden[0]

    def train(self, mode: bool = True) -> "Learner":
        """Implement `nn.Module.train`."""
        self._shell.train(mode)
        return super().train(mode)

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        """Move the model's buffers to the device and precision of this module."""
        self._shell._apply(fn, recurse)
        return super()._apply(fn, recurse)

    def use_kernel(self) -> str | None:
        """Use the fused kernel from now on, or return why it does not support this model."""
        if self._loss is not action_loss:
            return "the loss is another package's"
        reason = obstacle(self._shell, self.flat.device, self.flat.dtype)
        if reason is None:
            sizes = {name: shape.numel() for name, shape in self.shapes.items()}
            assert isinstance(self._shell, Transformer)
            self._kernel = Kernel(self._shell, sizes)
        return reason

    def use_graphs(self) -> str | None:
        """Use CUDA graphs on a GPU from now on, or return why torch cannot make them.

        Most kernels of a small model take longer to launch than to run.
        """
        reason = graphs_obstacle(self.flat.device)
        if reason is None:
            self._graphs = torch.compile(self._torch_loss, mode="reduce-overhead", dynamic=False)
        return reason

    def checkpoint_activations(self) -> None:
        """Compute the inside of the model's blocks again in backward passes by torch."""
        assert isinstance(self._shell, Transformer)
        self._shell.checkpoint_activations = True

    def forward(self, batch: Batch) -> Tensor:
        """Return the loss of a batch; see `action_loss`."""
        kernel, labels, weights = self._kernel, batch.labels, batch.weights
        if kernel is None:
            return (self._graphs or self._torch_loss)(batch)
        keys = self._dropout_keys if self.training else None

        def loss(tokens: Tensor, query_tokens: Tensor, prefixes: Tensor) -> Tensor:
            return kernel.loss(self.flat, tokens, query_tokens, prefixes, labels, weights, keys)

        return self._through(loss, batch)

    def _torch_loss(self, batch: Batch) -> Tensor:
        return self._loss(self.logits(batch), batch.labels, batch.weights)

    def logits(self, batch: Batch) -> Tensor:
        """Return the action logits of its questions, (B, K, A)."""
        kernel = self._kernel
        if kernel is None:
            inputs = (batch.context, batch.queries)
            logits: Tensor = functional_call(self._shell, self.named_weights(), inputs)
            return logits
        return self._through(functools.partial(kernel.answer, self.flat), batch)

    def _through(self, through: Through, batch: Batch) -> Tensor:
        """Return `through` of a batch's tokens; making them needs the image encoder's weights."""
        inputs = (batch.context, batch.queries, through)
        if self._shell.images is None:  # a functional call is slower than the optimizer
            tokens: Tensor = self._shell(*inputs)
            return tokens
        result: Tensor = functional_call(self._shell, self.named_weights(), inputs)
        return result

    def begin_step(self, seed: int, step: int, rank: int, part: int = 0) -> None:
        """Seed the dropout of this rank's next pass with these numbers."""
        parts = (part,) if part else ()
        words = np.random.SeedSequence([seed, step, rank], spawn_key=parts).generate_state(4)
        if self._kernel is None:  # on a CPU it takes as long as the optimizer
            torch.manual_seed(int(words[0]) << 32 | int(words[1]))
        self._dropout_keys = words[2:].astype(np.int64)

    def named_weights(self) -> dict[str, Tensor]:
        """Return the weights by their names in the model, as views of the flat parameter."""
        # One split, whose gradient is one concatenation.
        parts = self.flat.split([shape.numel() for shape in self.shapes.values()])
        return {
            name: part.view(shape)
            for (name, shape), part in zip(self.shapes.items(), parts, strict=True)
        }


def graphs_obstacle(device: torch.device) -> str | None:
    """Return why torch cannot make CUDA graphs on a device, or None if it can."""
    if device.type != "cuda":
        return f"the device is {device.type}"
    try:
        torch.compile(lambda x: x + 1, mode="reduce-overhead")(torch.ones(8, device=device))
    except Exception as error:  # its parts raise errors of any kind
        return f"torch.compile fails: {' '.join(str(error).split())[:200]}"
    return None
