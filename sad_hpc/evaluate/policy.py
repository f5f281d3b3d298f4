"""A trained transformer as a policy: loading it, what it answers, and which action that is."""

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from sad_hpc.errors import CheckpointError
from sad_hpc.model.context import Context, Inputs, Queries
from sad_hpc.model.fused.kernel import Kernel, compile_kernel, obstacle
from sad_hpc.model.transformer import Through, Transformer
from sad_hpc.model.weights import WEIGHTS, load_weights
from sad_hpc.storage.run import Run
from sad_hpc.storage.trained import trained_models
from sad_hpc.tasks.base import make_family
from sad_hpc.tasks.tabular import TabularFamily


@dataclass(frozen=True)
class Trained:
    """A trained transformer, and how much it may be shown."""

    model: Transformer
    longest: int
    """Transitions of the longest context that its training asked after."""

    def shown(self, context: Context) -> Context:
        """The last transitions of contexts, as many as the model may be shown."""
        return context.map(lambda part: part[:, max(0, part.shape[1] - self.longest) :])


def load_model(run: Run, method: str, seed: int, temperature: float = 1.0) -> Transformer:
    """The trained model of one (method, seed), ready to answer.

    Args:
        run: of the evaluation.
        method: of the model.
        seed: of its training.
        temperature: its logits are divided by.

    Raises:
        CheckpointError: it is not trained yet, damaged, or of another model.
    """
    folder, trained = run.checkpoint(method, seed), run.experiment.source
    marker = folder.done
    if marker is None:
        raise CheckpointError(
            f"{trained.name} {method} seed {seed} is not trained with these settings "
            f"({folder.path} has no done.json); {trained_models(run)}. Give the CONFIG "
            f"key=value of its training, or run `sad-hpc pretrain CONFIG --row {method} --seed "
            f"{seed}`"
        )
    inputs = Inputs.of_family(make_family(trained.task))
    model = Transformer(trained.model, inputs)
    signature = run.experiment.pretrain_signature(method, seed)
    load_weights(folder.path / WEIGHTS, model, signature, str(marker.get("checksum")))
    with torch.no_grad():
        model.head.weight.div_(temperature)
        model.head.bias.div_(temperature)
    make_ready(model, kernel=trained.pretrain.kernel == "auto")
    return model


def make_ready(model: Transformer, kernel: bool = True) -> None:
    """Put a model where it answers fastest: on the GPU if there is one, else into the kernel."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model.to(device).eval()
    if kernel and obstacle(model, device, torch.float32) is None:
        compile_kernel()
        model.through = _answers_of_kernel(model)


def _answers_of_kernel(model: Transformer) -> Through:
    weights = dict(model.named_parameters())
    kernel = Kernel(model, {name: each.numel() for name, each in weights.items()})
    flat = torch.cat([each.detach().flatten() for each in weights.values()])
    return functools.partial(kernel.answer, flat)


@torch.no_grad()
def answers(
    model: Transformer,
    context: Context,
    states: NDArray[Any],
    prefixes: NDArray[np.int64],
    batch_size: int,
) -> NDArray[np.float32]:
    """Return action logits of the same K = Q P questions behind each of n contexts, (n, K, A).

    A context is encoded once for all of them.

    Args:
        model: the transformer.
        context: n contexts of the same length t.
        states: (Q, d), in the dataset's dtype.
        prefixes: (Q, P): after how many of the t transitions each state is asked.
        batch_size: contexts in one forward pass.
    """
    device = model.head.weight.device
    asked, after = torch.from_numpy(states).to(device), torch.from_numpy(prefixes).to(device)
    parts = []
    for part in context.split(batch_size):
        rows = len(part.actions)
        queries = Queries(asked.expand(rows, -1, -1), after.expand(rows, -1, -1))
        logits = model(part.map(lambda column: column.to(device)), queries)
        parts.append(logits.float().cpu().numpy())
    return np.concatenate(parts)


def state_logits(
    model: Transformer, family: TabularFamily, context: Context, batch_size: int
) -> NDArray[np.float32]:
    """Return action logits in every state, each after the whole of one of n contexts, (n, S, A).

    See `answers` for the arguments.
    """
    prefixes = np.full((family.n_states, 1), context.actions.shape[1])
    return answers(model, context, family.coordinates, prefixes, batch_size)


def greedy(logits: NDArray[np.float32]) -> NDArray[np.int64]:
    """(..., A) -> (...): the likeliest action."""
    return logits.argmax(axis=-1)


def settled(logits: NDArray[np.float32], known: NDArray[np.bool_]) -> NDArray[np.float32]:
    """Return in the rows of `known` (n,) -inf for all but the likeliest action, whose draw is
    certain then, (n, ..., A).
    """
    unlikely = np.arange(logits.shape[-1]) != greedy(logits)[..., None]
    rows = known.reshape(-1, *(1,) * (logits.ndim - 1))
    return np.where(rows & unlikely, np.float32(-np.inf), logits)


def sampled(logits: NDArray[np.float32], uniforms: NDArray[np.float64]) -> NDArray[np.int64]:
    """(n, A) -> (n,): an action drawn from the softmax, by one uniform number in [0, 1) a row."""
    weights = np.exp(logits.astype(np.float64) - logits.max(axis=-1, keepdims=True))
    cumulative = weights.cumsum(axis=-1)
    below = cumulative <= uniforms[:, None] * cumulative[:, -1:]
    return below.sum(axis=-1)
