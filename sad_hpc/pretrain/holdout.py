"""Loss and accuracy on held-out training tasks, and comparison with the Bayes-optimal learner.

The loss on validation tasks is measured in the same way.
"""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from sad_hpc.ideal.answers import IdealAnswers
from sad_hpc.pretrain.examples import Examples
from sad_hpc.pretrain.learner import action_loss
from sad_hpc.pretrain.questions import Batch

ROWS = 256
"""Number of tasks in one forward pass."""


class Holdout:
    """A rank's share of the held-out tasks, and of as many validation tasks.

    Args:
        examples: examples that include the held-out ones and those of validation tasks.
        rank: rank of this process.
        world_size: number of ranks.
    """

    def __init__(self, examples: Examples, rank: int, world_size: int) -> None:
        self._examples, self._rows = examples, examples.holdout(rank, world_size)
        self._validation_rows = examples.validation(rank, world_size)

    def measure(self, engine: Any) -> dict[str, float]:
        """Compute means over all ranks' held-out tasks; every rank must call it.

        Returns:
            `holdout_loss` in nats, normalized by weights, and `holdout_accuracy` of labels.  For
            vectors both are means over components, each asked for after the label's components
            before it.  If the Bayes-optimal answers are known, also `excess_loss`, and
            `told_accuracy`: the share of optimal actions for contexts that are consistent with a
            single task.
        """
        ideal = self._examples.ideal
        sums = self._sums_over(self._rows, ideal, engine)
        loss, weight, accuracy, ideal_loss, told, right = sums
        found = {
            "holdout_loss": loss / max(weight, 1e-9),
            "holdout_accuracy": accuracy / self._examples.n_holdout,
        }
        if ideal is not None:
            found["excess_loss"] = (loss - ideal_loss) / self._examples.n_holdout
        if told:
            found["told_accuracy"] = right / told
        return found

    def validation_loss(self, engine: Any) -> float:
        """Compute `holdout_loss` on the contexts of validation tasks; every rank must call it."""
        loss, weight, *_ = self._sums_over(self._validation_rows, None, engine)
        return loss / max(weight, 1e-9)

    @torch.no_grad()
    def _sums_over(self, every: Tensor, ideal: IdealAnswers | None, engine: Any) -> list[float]:
        """Return all ranks' sums over rows: 3 of `_sums`, and 3 of `_sums_beside` if `ideal`."""
        engine.eval()
        sums = torch.zeros(6, dtype=torch.float64, device=engine.device)
        for rows in every.split(ROWS):
            if len(rows):  # there can be fewer tasks than ranks
                batch = self._examples.held_out(rows)
                logits = engine.module.logits(batch)
                sums[:3] += _sums(batch, logits)
                if ideal is not None:
                    sums[3:] += _sums_beside(ideal, self._own(rows), batch, logits)
        dist.all_reduce(sums)
        engine.train()
        return sums.tolist()

    def _own(self, rows: Tensor) -> Any:
        """Return the numbers of rows among the held-out ones."""
        return (rows - self._examples.n_train).cpu().numpy()


def _sums(batch: Batch, logits: Tensor) -> Tensor:
    """Return sums over tasks of loss, weight and accuracy, (3,)."""
    tasks = len(logits)
    right = (logits.argmax(dim=-1) == batch.labels)[:, batch.judged].double().mean(1).sum()
    weight = float(tasks) if batch.weights is None else batch.weights.mean(1).sum().item()
    loss = action_loss(logits, batch.labels, batch.weights).item() * tasks
    return torch.tensor([loss, weight, right.item()], dtype=torch.float64, device=logits.device)


def _sums_beside(ideal: IdealAnswers, own: Any, batch: Batch, logits: Tensor) -> Tensor:
    """Return the Bayes-optimal loss, and counts of `told` and of optimal told answers, (3,)."""
    probabilities = torch.from_numpy(ideal.probabilities[own]).to(logits.device)
    loss = action_loss(probabilities.log(), batch.labels).item() * len(logits)
    told = torch.from_numpy(ideal.told[own]).to(logits.device)
    optimal = torch.from_numpy(ideal.right[own]).to(logits.device)
    right = optimal.gather(1, logits.argmax(dim=-1)) & told
    counts = [loss, told.sum().item(), right.sum().item()]
    return torch.tensor(counts, dtype=torch.float64, device=logits.device)
