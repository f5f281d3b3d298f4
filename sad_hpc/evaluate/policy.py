"""A trained transformer as a policy: loading it, and its answers under fixed contexts."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sad_hpc.errors import CheckpointError
from sad_hpc.model.transformer import Context, Inputs, Transformer
from sad_hpc.model.weights import WEIGHTS, load_weights
from sad_hpc.storage.run import Run
from sad_hpc.tasks.base import TabularFamily, make_family


def load_model(run: Run, method: str, seed: int) -> Transformer:
    """The trained model of one (method, seed), ready to answer.

    Raises:
        CheckpointError: it is not trained yet, damaged, or of another model.
    """
    folder, trained = run.checkpoint(method, seed), run.experiment.source
    marker = folder.done
    if marker is None:
        raise CheckpointError(
            f"{trained.name} {method} seed {seed} is not trained: {folder.path} has no done.json; "
            f"run `sad-hpc pretrain CONFIG --method {method} --seed {seed}` or `sad-hpc launch "
            f"CONFIG` with the config of {trained.name}"
        )
    inputs = Inputs.of_family(make_family(trained.task))
    model = Transformer(trained.model, inputs)
    signature = run.experiment.pretrain_signature(method, seed)
    load_weights(folder.path / WEIGHTS, model, signature, str(marker.get("checksum")))
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return model.to(device).eval()


class ContextPolicy:
    """The answers of a model for n tasks whose contexts stay fixed while an episode is played.

    The answer depends on the query state alone then, so each (task, state) is asked only once.

    Args:
        model: the transformer.
        family: says how states are written.
        context: n contexts of the same length.
        batch_size: sequences in one forward pass.
    """

    def __init__(
        self, model: Transformer, family: TabularFamily, context: Context, batch_size: int
    ) -> None:
        self._model, self._batch_size = model, batch_size
        self._device = model.head.weight.device
        self._tokens = self._read(context)
        self._coordinates = torch.from_numpy(family.coordinates).to(self._device)
        n_tasks = len(context.actions)
        self._logits = np.zeros((n_tasks, family.n_states, family.n_actions), np.float32)
        self._known = np.zeros((n_tasks, family.n_states), bool)

    def logits(self, states: NDArray[np.int64]) -> NDArray[np.float32]:
        """(n, A): each task's action logits in its state; states (n,)."""
        tasks = np.arange(len(states))
        unknown = np.flatnonzero(~self._known[tasks, states])
        for first in range(0, len(unknown), self._batch_size):
            self._ask(unknown[first : first + self._batch_size], states)
        return self._logits[tasks, states]

    @torch.no_grad()
    def _read(self, context: Context) -> Tensor:
        """(n, t, width)"""
        return self._model.context_tokens(context.map(lambda part: part.to(self._device)))

    @torch.no_grad()
    def _ask(self, tasks: NDArray[np.int64], states: NDArray[np.int64]) -> None:
        queries = self._coordinates[torch.from_numpy(states[tasks]).to(self._device)]
        query = self._model.query_token(self._model.features(queries))
        rows = torch.from_numpy(tasks).to(self._device)
        answers = self._model.last_answer(torch.cat([query, self._tokens[rows]], dim=1))
        self._logits[tasks, states[tasks]] = answers.float().cpu().numpy()
        self._known[tasks, states[tasks]] = True


def greedy(logits: NDArray[np.float32]) -> NDArray[np.int64]:
    """(n, A) -> (n,): the likeliest action."""
    return logits.argmax(axis=-1)


def sampled(logits: NDArray[np.float32], uniforms: NDArray[np.float64]) -> NDArray[np.int64]:
    """(n, A) -> (n,): an action drawn from the softmax, by one uniform number in [0, 1) a row."""
    weights = np.exp(logits.astype(np.float64) - logits.max(axis=-1, keepdims=True))
    cumulative = weights.cumsum(axis=-1)
    below = cumulative <= uniforms[:, None] * cumulative[:, -1:]
    return below.sum(axis=-1)
