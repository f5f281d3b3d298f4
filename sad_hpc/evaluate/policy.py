"""A trained model as a policy: loading, logits, and the choice of actions."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from sad_hpc.errors import CheckpointError
from sad_hpc.model.architecture import make_model
from sad_hpc.model.context import Context, Inputs, Queries
from sad_hpc.model.fused.answers import Answers
from sad_hpc.model.fused.kernel import compile_kernel, obstacle
from sad_hpc.model.sequence_model import SequenceModel
from sad_hpc.model.transformer import Transformer
from sad_hpc.model.weights import WEIGHTS, load_weights
from sad_hpc.parallel.threads import limit_threads
from sad_hpc.storage.run import Run, trained_models
from sad_hpc.tasks.base import make_family
from sad_hpc.tasks.tabular import TabularFamily


@dataclass(frozen=True)
class Trained:
    """A trained model, and the length of its longest context."""

    model: SequenceModel
    longest: int
    """Number of transitions in the longest context of its training."""

    def shown(self, context: Context) -> Context:
        """Return the last transitions of contexts, at most `longest`."""
        return context.map(lambda part: part[:, max(0, part.shape[1] - self.longest) :])


def load_model(run: Run, method: str, seed: int) -> SequenceModel:
    """Load the trained model of one (method, seed), which answers in one thread.

    Args:
        run: run of the evaluation.
        method: method of the model.
        seed: seed of its training.

    Raises:
        CheckpointError: the model is not trained yet, damaged, or another one.
    """
    folder, trained = run.checkpoint(method, seed), run.experiment.source
    marker = folder.done
    if marker is None:
        raise CheckpointError(
            f"{trained.name} {method} seed {seed} is not trained with these settings "
            f"({folder.path} has no done.json); {trained_models(run)}. Give the CONFIG "
            f"key=value of its training, or run `sad-hpc pretrain CONFIG --row {method} --seed "
            f"{seed}`; a model of an earlier round is trained by `sad-hpc launch` alone"
        )
    inputs = Inputs.of_family(make_family(trained.task), trained.context_length(method))
    model = make_model(trained.model, inputs)
    signature = run.experiment.pretrain_signature(method, seed)
    load_weights(folder.path / WEIGHTS, model, signature, str(marker.get("checksum")))
    limit_threads(1)
    make_ready(model, kernel=trained.pretrain.kernel == "auto")
    return model


def make_ready(model: SequenceModel, kernel: bool = True) -> None:
    """Move a model to the GPU if available, or else make it use the compiled kernel if possible."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model.to(device).eval()
    if kernel and obstacle(model, device, torch.float32) is None:
        assert isinstance(model, Transformer)
        compile_kernel()
        model.through = Answers(model)


@torch.no_grad()
def answers(
    model: SequenceModel,
    context: Context,
    states: NDArray[Any],
    prefixes: NDArray[np.int64],
    batch_size: int,
    actions: NDArray[np.float32] | None = None,
) -> NDArray[np.float32]:
    """Return the action logits of the same K questions about each of n contexts, (n, K, A).

    Each context is encoded once.

    Args:
        model: the trained model.
        context: n contexts of the same length t.
        states: (Q, ...) query states, in the dataset's dtype.
        prefixes: (Q, P): numbers of transitions after which each state is queried.
        batch_size: number of contexts in one forward pass.
        actions: (Q P, j); see `Queries`.
    """
    device = model.device
    held = None if actions is None else torch.from_numpy(actions).to(device)
    asked, after = torch.from_numpy(states).to(device), torch.from_numpy(prefixes).to(device)
    parts = []
    for part in context.split(batch_size):
        rows = len(part.actions)
        queries = Queries(
            asked.expand(rows, *asked.shape),
            after.expand(rows, *after.shape),
            actions=None if held is None else held.expand(rows, -1, -1),
        )
        logits = model(part.map(lambda column: column.to(device)), queries)
        parts.append(logits.float().cpu().numpy())
    return np.concatenate(parts)


def state_logits(
    model: SequenceModel, family: TabularFamily, context: Context, batch_size: int
) -> NDArray[np.float32]:
    """Return the action logits in every state after each of n whole contexts, (n, S, A).

    See `answers` for the arguments.
    """
    prefixes = np.full((family.n_states, 1), context.actions.shape[1])
    return answers(model, context, family.coordinates, prefixes, batch_size)
