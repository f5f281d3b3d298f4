"""A recurrent model, and a loss with smoothed labels, for any experiment.

pip install examples/recurrent_model
sad-hpc launch configs/quickstart.yaml name=recurrent model.architecture=gru
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


class RecurrentModel(SequenceModel):
    """A GRU reads the transitions; a network answers a query from the GRU's state at its prefix.

    Only `model.embedding` has a meaning here: the size of the state.
    """

    def __init__(self, config: ModelConfig, inputs: Inputs) -> None:
        super().__init__(inputs)
        self.size = config.embedding
        self.read = nn.GRU(inputs.width, self.size, batch_first=True)
        self.head = nn.Sequential(
            nn.Linear(inputs.width + self.size, 4 * self.size),
            nn.GELU(),
            nn.Linear(4 * self.size, inputs.n_actions),
        )

    def extend(self, cache: KVCache, tokens: Tensor, with_answers: bool = True) -> Tensor:
        """Implement `SequenceModel.extend`; the cache keeps the state after each transition."""
        tokens = tokens.to(self.read.weight_ih_l0.dtype)
        states = tokens.new_zeros(len(tokens), 0, self.size)
        if tokens.shape[1]:
            states, _ = self.read(tokens, self._states(cache, tokens)[:, -1:].transpose(0, 1))
        cache.append(0, states.unsqueeze(1), states.unsqueeze(1))
        cache.length += tokens.shape[1]
        if not with_answers:
            return tokens.new_zeros(len(tokens), 0, self.inputs.n_actions)
        # The token of a bandit's only state is zero.
        return self.head(F.pad(states, (self.inputs.width, 0)))

    def ask(self, cache: KVCache, query_tokens: Tensor, prefixes: Tensor) -> Tensor:
        """Implement `SequenceModel.ask`."""
        query_tokens = query_tokens.to(self.read.weight_ih_l0.dtype)
        states = self._states(cache, query_tokens)
        seen = states.gather(1, prefixes.unsqueeze(2).expand(-1, -1, self.size))
        return self.head(torch.cat([query_tokens, seen], dim=2))

    def _states(self, cache: KVCache, tokens: Tensor) -> Tensor:
        """Return the states (B, t + 1, size) after 0 to t cached transitions."""
        first = tokens.new_zeros(len(tokens), 1, self.size)
        return torch.cat([first, cache.read(0)[0].squeeze(1)], dim=1) if cache.length else first


def smoothed(logits: Tensor, labels: Tensor, weights: Tensor | None) -> Tensor:
    """Return the mean loss of logits (B, K, A) for labels (B, K) that may be wrong."""
    scores, expected = logits.flatten(0, 1).float(), labels.flatten()
    losses = F.cross_entropy(scores, expected, reduction="none", label_smoothing=SMOOTHING)
    return losses.mean() if weights is None else (weights.flatten() * losses).mean()
