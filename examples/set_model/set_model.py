"""A model that reads a context as a set, and a loss with smoothed labels, for any experiment.

pip install examples/set_model
sad-hpc launch configs/quickstart.yaml name=set_model model.architecture=deep_set
sad-hpc launch configs/quickstart.yaml name=smooth pretrain.loss=smoothed
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sad_hpc.experiment.sections import ModelConfig
from sad_hpc.model.context import Inputs
from sad_hpc.model.kv_cache import KVCache
from sad_hpc.model.sequence_model import SequenceModel

SMOOTHING = 0.1


class DeepSet(SequenceModel):
    """Deep Sets (Zaheer et al. 2017): the answer depends on the mean of the embedded transitions.

    The contexts of SAD are sets: they are drawn independently.  Of the `model` section only
    `embedding` has a meaning here.
    """

    def __init__(self, config: ModelConfig, inputs: Inputs) -> None:
        super().__init__(inputs)
        self.size = 4 * config.embedding
        self.embed = self._network(inputs.width, self.size)
        self.head = self._network(inputs.width + self.size, inputs.n_actions)

    def _network(self, width: int, outputs: int) -> nn.Sequential:
        return nn.Sequential(
            nn.Linear(width, self.size),
            nn.GELU(),
            nn.Linear(self.size, self.size),
            nn.GELU(),
            nn.Linear(self.size, outputs),
        )

    def extend(self, cache: KVCache, tokens: Tensor, with_answers: bool = True) -> Tensor:
        """Implement `SequenceModel.extend`; the cache holds the sum after each transition."""
        tokens = tokens.to(self.head[0].weight.dtype)
        sums = self._sums(cache, tokens)[:, -1:] + self.embed(tokens).cumsum(dim=1)
        cache.append(0, sums.unsqueeze(1), sums.unsqueeze(1))
        cache.length += tokens.shape[1]
        if not with_answers:
            return tokens.new_zeros(len(tokens), 0, self.inputs.n_actions)
        # The token of a bandit's only state is zero.
        after = torch.arange(cache.length - tokens.shape[1], cache.length, device=tokens.device) + 1
        return self._answer(torch.zeros_like(tokens), sums, after.expand(len(tokens), -1))

    def ask(self, cache: KVCache, query_tokens: Tensor, prefixes: Tensor) -> Tensor:
        """Implement `SequenceModel.ask`."""
        query_tokens = query_tokens.to(self.head[0].weight.dtype)
        places = prefixes.unsqueeze(2).expand(-1, -1, self.size)
        return self._answer(
            query_tokens, self._sums(cache, query_tokens).gather(1, places), prefixes
        )

    def _answer(self, queries: Tensor, sums: Tensor, counts: Tensor) -> Tensor:
        means = sums / counts.clamp(min=1).unsqueeze(2)
        return self.head(torch.cat([queries, means], dim=2))

    def _sums(self, cache: KVCache, tokens: Tensor) -> Tensor:
        """Return the sums (B, t + 1, size) after 0 to t cached transitions."""
        none = tokens.new_zeros(len(tokens), 1, self.size)
        return torch.cat([none, cache.read(0)[0].squeeze(1)], dim=1) if cache.length else none


def smoothed(logits: Tensor, labels: Tensor, weights: Tensor | None) -> Tensor:
    """Return the mean loss of logits (B, K, A) for labels (B, K) that may be wrong."""
    scores, expected = logits.flatten(0, 1).float(), labels.flatten()
    losses = F.cross_entropy(scores, expected, reduction="none", label_smoothing=SMOOTHING)
    return losses.mean() if weights is None else (weights.flatten() * losses).mean()
