"""The compiled training step in torch and float64, with the kernel's dropout masks."""

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sad_hpc.experiment.sections import ModelConfig
from sad_hpc.model.context import Inputs
from sad_hpc.model.fused.kernel import Kernel
from sad_hpc.model.transformer import Transformer, TransformerBlock


@dataclass
class Case:
    """A model and a batch for it, all random."""

    config: ModelConfig
    inputs: Inputs
    tokens: Tensor
    """(B, T, width)"""
    queries: Tensor
    """(B, K, width)"""
    prefixes: Tensor
    labels: Tensor
    weights: Tensor
    model: Transformer

    @classmethod
    def of(
        cls,
        *,
        seed: int = 0,
        batch: int = 2,
        transitions: int = 11,
        queries: int = 5,
        actions: int = 5,
        stateless: bool = False,
        **model: float,
    ) -> "Case":
        torch.manual_seed(seed)
        config = ModelConfig(**({"dropout": 0.0} | model))
        inputs = Inputs(actions, transitions + 1, (3.0, 3.0), (0.5, 0.5), stateless=stateless)
        every = torch.arange(transitions + 1).expand(batch, -1)
        prefixes = every if stateless else torch.randint(transitions + 1, (batch, queries))
        network = Transformer(config, inputs)
        for weight in network.parameters():  # norms and biases would begin with ones and zeros
            weight.data += 0.1 * torch.randn_like(weight)
        # Bandits have one state: all queries are the same.
        query_tokens = torch.randn(batch, 1 if stateless else queries, inputs.width)
        return cls(
            config,
            inputs,
            torch.randn(batch, transitions, inputs.width),
            query_tokens.expand(-1, prefixes.shape[1], -1).contiguous(),
            prefixes,
            torch.randint(actions, prefixes.shape),
            torch.rand(prefixes.shape),
            network,
        )

    @property
    def kernel(self) -> Kernel:
        return Kernel(self.model, {n: w.numel() for n, w in self.model.named_parameters()})

    @property
    def flat(self) -> Tensor:
        return torch.cat([weight.detach().flatten() for weight in self.model.parameters()])

    def by_kernel(self, keys: np.ndarray | None = None) -> tuple[float, list[Tensor]]:
        """The loss, and the gradients of weights, tokens and queries."""
        flat, tokens, queries = (
            each.clone().requires_grad_() for each in (self.flat, self.tokens, self.queries)
        )
        inputs = (tokens, queries, self.prefixes, self.labels, self.weights)
        loss = self.kernel.loss(flat, *inputs, keys)
        loss.backward()
        sizes = [weight.numel() for weight in self.model.parameters()]
        return loss.item(), [*flat.grad.split(sizes), tokens.grad, queries.grad]

    def by_torch(self, keys: np.ndarray | None = None) -> tuple[float, list[Tensor]]:
        """Return loss and gradients by torch in float64."""
        network = Transformer(self.config, self.inputs)
        network.load_state_dict(self.model.state_dict())
        network.double()
        if keys is not None:
            self._mask(network, keys)
        tokens, queries = (each.double().requires_grad_() for each in (self.tokens, self.queries))
        logits = network.answer(tokens, queries, self.prefixes)
        losses = F.cross_entropy(logits.flatten(0, 1), self.labels.flatten(), reduction="none")
        loss = (losses * self.weights.flatten()).mean()
        loss.backward()
        weights = [weight.grad.flatten() for weight in network.parameters()]
        return loss.item(), [*weights, tokens.grad, queries.grad]

    def _mask(self, network: Transformer, keys: np.ndarray) -> None:
        batch, transitions, _ = self.tokens.shape
        rows = 1 if self.inputs.stateless else self.queries.shape[1]
        masks = dropout_masks(
            keys, self.config, batch=batch, length=transitions + rows, layers=self.config.layers
        )
        parts = [slice(0, transitions), slice(transitions, transitions + rows)]
        if self.inputs.stateless:  # asks before it reads on
            parts.reverse()
        network.dropout = Masks(masks[0], parts)
        for number, block in enumerate(network.blocks):
            assert isinstance(block, TransformerBlock)
            last = number + 1 == len(network.blocks) and not self.inputs.stateless
            answers = [
                part for part in parts if part.stop > transitions or not (last or transitions == 0)
            ]
            block.attention.dropout = Masks(masks[1 + 2 * number], answers)
            block.feed_forward[3] = Masks(masks[2 + 2 * number], answers)


class Masks(nn.Module):
    """Multiplies what comes by the next part of its rows."""

    def __init__(self, mask: np.ndarray, parts: list[slice]) -> None:
        super().__init__()
        self._mask, self._parts = torch.from_numpy(mask), list(parts)

    def forward(self, x: Tensor) -> Tensor:
        """(B, l, E) -> (B, l, E)"""
        return x * self._mask[:, self._parts.pop(0)]


def dropout_masks(
    keys: np.ndarray, config: ModelConfig, *, batch: int, length: int, layers: int
) -> np.ndarray:
    """(2 layers + 1, B, L, E): 0, or 1 / (1 - p), as the kernel's hash has it."""
    width, threshold = config.embedding, round(config.dropout * 65536)
    pairs = -(-width // 32)
    sites = np.arange(2 * layers + 1, dtype=np.uint64)[:, None, None, None, None]
    rows = np.arange(batch, dtype=np.uint64)[None, :, None, None, None]
    places = np.arange(length, dtype=np.uint64)[None, None, :, None, None]
    pair = np.arange(pairs, dtype=np.uint64)[None, None, None, :, None]
    lanes = np.arange(16, dtype=np.uint64)
    counters = ((sites * length + places) * pairs + pair) * 16 + lanes
    key = (np.uint64(keys[0]) + rows * np.uint64(0x9E3779B9)).astype(np.uint32)
    bits = mixed(mixed(counters.astype(np.uint32) ^ key) + np.uint32(keys[1]))
    halves = np.stack([bits & 0xFFFF, bits >> 16], axis=-2)  # (..., pairs, 2, 16)
    kept = (halves >= threshold).reshape(2 * layers + 1, batch, length, 32 * pairs)[..., :width]
    return kept * 65536 / (65536 - threshold)


def mixed(x: np.ndarray) -> np.ndarray:
    """lowbias32, a hash of 32 bits."""
    x = (x ^ (x >> np.uint32(16))) * np.uint32(0x7FEB352D)
    x = (x ^ (x >> np.uint32(15))) * np.uint32(0x846CA68B)
    return x ^ (x >> np.uint32(16))
